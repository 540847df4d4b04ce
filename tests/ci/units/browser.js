/* browser.js: what the scripts share that page.sh and web.sh put at the end of a page: checks that are counted, keys,
 * contrast, and a report, which stands in the page that Chromium prints.  A page has find(id) and all(selector). */
const verdicts = { passed: 0, failed: [] };
function check(is, what) {
    if (is) verdicts.passed++;
    else verdicts.failed.push(what);
}
const textOf = id => find(id) ? find(id).textContent : null;
const wait = ms => new Promise(done => setTimeout(done, ms));
const press = (key, more) => (document.activeElement || document.body).dispatchEvent(
    new KeyboardEvent('keydown', Object.assign({ key, bubbles: true, cancelable: true }, more)));

/* Lines "failed: ..", then "N passed, N failed"; a page in a frame hands them on to the page around it. */
function report(done) {
    done.catch(e => check(false, e + ' ' + e.stack)).then(() => {
        const place = document.createElement('pre');
        place.textContent = verdicts.failed.slice(0, 20).map(what => 'failed: ' + what + '\n').join('') +
            'in a window of ' + innerWidth + ': ' +
            verdicts.passed + ' passed, ' + verdicts.failed.length + ' failed\n';
        place.id = 'report';
        document.body.appendChild(place);
        if (parent !== window) parent.postMessage(place.textContent, '*');
    });
}

/* How far two colours are apart, as WCAG defines it. */
function contrast(a, b) {
    const light = colour => colour.match(/[0-9.]+/g).slice(0, 3).map(c => c / 255)
        .map(c => c > 0.04 ? Math.pow((c + 0.055) / 1.055, 2.4) : c / 12.92)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const two = [light(a), light(b)].sort((p, q) => p - q);
    return (two[1] + 0.05) / (two[0] + 0.05);
}

/* Texts, as [what, ink, paper], are legible in the colours of this run, and the page is no wider than its window. */
function checkColours(texts) {
    const ground = getComputedStyle(document.body).backgroundColor, dark = location.hash.includes('dark');
    check(matchMedia('(prefers-color-scheme: dark)').matches === dark, 'the scheme is not the one that was asked for');
    check(contrast(ground, dark ? 'rgb(0, 0, 0)' : 'rgb(255, 255, 255)') < 1.5, 'the page has the ground ' + ground);
    texts.forEach(([what, ink, paper]) => check(contrast(ink, paper) >= 4.5, what + ': ' + ink + ' on ' + paper));
    check(document.documentElement.scrollWidth <= innerWidth,
        'the page is wider than its window: ' + document.documentElement.scrollWidth + ' of ' + innerWidth);
}
