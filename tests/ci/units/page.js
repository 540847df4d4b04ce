/* page.js: put at the end of a page of tg_tape_html, with `expected` from page.c before it, steps through the page by
 * keys and buttons as a reader does, and compares what it shows with the run. */
/* What the page says beside what the run has: numbers are written with four digits. */
function same(text, values) {
    if (text === null) return false;
    if (typeof values === 'string') return text === values;
    const found = text.replace(/[[\],]/g, ' ').trim().split(/ +/).map(Number);
    return found.length === values.length &&
        found.every((x, i) => Math.abs(x - values[i]) <= 6e-4 * Math.abs(values[i]));
}

/* The same of a text that was cut where it stands on a wire: the numbers that are whole. */
function sameOnWire(text, values) {
    if (!text.endsWith('..')) return same(text, values);
    if (typeof values === 'string') return values.startsWith(text.slice(0, 12));
    return same(text.slice(0, text.lastIndexOf(', ')), values.slice(0, text.split(', ').length - 1));
}

/* After step k, counted from 1. */
function checkStep(k) {
    const step = expected.steps[k - 1], at = expected.name + ' step ' + k + ': ';
    const line = 'step ' + k + ' of ' + expected.steps.length + ', node ' + step.line;
    check(textOf('line') === line, at + 'the line is ' + textOf('line') + ', not ' + line);
    check(find('log').children[k - 1].textContent === step.line, at + 'the log has another line');
    check(find('log').querySelectorAll('.now').length === 1 && find('log').children[k - 1].classList.contains('now'),
        at + 'the log marks another line');
    check(find('at').value === String(k), at + 'the slider is at ' + find('at').value);
    check(all('svg .node.now').map(e => e.id).join() === 'n' + step.row, at + 'another box is marked');
    check(all('tr.now').map(e => e.id).join() === 'r' + step.row, at + 'another row is marked');
    check(find('s' + step.row).classList.contains('used'), at + 'what was saved is not struck through');
    const wires = Object.keys(step.wires).filter(i => find('w' + step.row + '-' + i));
    check(wires.length > 0, at + 'no wire');
    check(all('.wire.now').map(e => e.id).sort().join() === wires.map(i => 'w' + step.row + '-' + i).sort().join(),
        at + 'other wires are marked');
    wires.forEach(i => check(sameOnWire(textOf('t' + step.row + '-' + i), step.wires[i]),
        at + 'wire ' + i + ' has ' + textOf('t' + step.row + '-' + i) + ', not ' + step.wires[i]));
    all('td[id^=c]').map(e => e.id.slice(1)).forEach(row => {
        const has = textOf('c' + row);
        check(row in step.sums ? same(has, step.sums[row]) : has === '-',
            at + 'the sum of row ' + row + ' is ' + has + ', not ' + (step.sums[row] || '-'));
        check(textOf('g' + row) === 'grad ' + cut(has), at + 'box ' + row + ' has another sum: ' + textOf('g' + row));
    });
}

function checkStart() {
    const root = expected.steps[0].row;
    check(textOf('line') === 'before the first step: the gradient of row ' + root + ' is 1',
        'before: ' + textOf('line'));
    check(all('.now, .used').length === 0 && all('.sent').every(e => !e.textContent), 'before: something is marked');
    check(all('td[id^=c]').every(e => e.textContent === (e.id === 'c' + root ? '1' : '-')), 'before: there are sums');
}

/* The same keys as a reader's, and buttons, and the slider. */
function checkKeys() {
    const end = expected.steps.length;
    const is = (k, what) => check(find('at').value === String(k), what + ': at ' + find('at').value);
    press('Home'); is(0, 'Home'); checkStart();
    press('ArrowLeft'); is(0, 'left of the first');
    press('ArrowRight'); press('ArrowRight'); press('ArrowLeft'); is(1, 'right, right, left'); checkStep(1);
    press('End'); is(end, 'End'); checkStep(end);
    press('ArrowRight'); is(end, 'right of the last');
    press('Home', { ctrlKey: true }); is(end, 'Home with Control is the browser\'s');
    check(find('next').disabled && find('last').disabled, 'Next and Last at the end');
    find('first').click(); is(0, 'First'); find('next').click(); is(1, 'Next');
    check(press('Tab'), 'Tab is the browser\'s');
    find('back').click(); is(0, 'Back'); find('last').click(); is(end, 'Last');
    find('at').focus(); press('ArrowLeft'); is(end, 'the slider moves itself, and not twice'); find('at').blur();
    find('at').value = 1; find('at').dispatchEvent(new Event('input')); is(1, 'the slider'); checkStep(1);
}

/* Plays from the start, with a pause. */
async function checkPlay() {
    const end = expected.steps.length;
    press('End'); press(' ');
    check(find('at').value === '0' && textOf('play') === 'Pause', 'play begins anew: at ' + find('at').value);
    await wait(1600);
    check(find('at').value === '1', 'one step after 1.6 s: at ' + find('at').value);
    press(' ');
    await wait(3100);
    check(find('at').value === '1' && textOf('play') === 'Play', 'a pause: at ' + find('at').value);
    find('play').click();
    await wait(1500 * end + 200);
    check(find('at').value === String(end) && textOf('play') === 'Play', 'played: at ' + find('at').value);
}

function checkLook() {
    const style = s => getComputedStyle(document.querySelector(s)), ground = style('body').backgroundColor;
    press('End');
    checkColours([['text', style('body').color, ground],
        ['a button', style('#first').color, style('#first').backgroundColor],
        ['the marked row', style('tr.now').color, style('tr.now').backgroundColor],
        ['a number on a wire', style('.sent').fill, style('.paper').fill]]);
    checkColours(all('svg .node').map(e => ['box ' + e.id, getComputedStyle(e.querySelector('text')).fill,
        getComputedStyle(e.querySelector('.box')).fill]));
}

async function checkPage() {
    const end = expected.steps.length;
    check(find('log').children.length === end && Number(find('at').max) === end,
        'the page has other steps than the run');
    checkStart();
    for (let k = 1; k <= end; ++k) {
        press('ArrowRight');
        checkStep(k);
    }
    for (let k = end - 1; k >= 1 && k > end - 20; --k) {
        press('ArrowLeft');
        checkStep(k);
    }
    press('End');
    Object.keys(expected.leaves).forEach(name => {
        const row = all('tbody tr').find(e => e.children[2].textContent === name);
        check(row && same(row.children[5].textContent, expected.leaves[name]), 'the gradient of ' + name);
    });
    checkKeys();
    if (end < 20) await checkPlay();
    checkLook();
}
report(checkPage());
