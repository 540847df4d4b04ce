/* web.js: put at the end of the page of `make web`, with `cases` and `moonLines` of the native program before it, uses
 * the page as a student does, and compares what it shows with what that program says. */
const setText = text => {
    find('text').value = text;
    find('text').dispatchEvent(new Event('input'));
};
const drag = (i, number) => {
    const range = find('numbers').children[i].querySelector('input');
    range.value = number;
    range.dispatchEvent(new Event('input'));
};

/* After step k of `run`, the steps that the native program has written. */
function checkStep(what, run, k) {
    const step = run.steps[k - 1], at = what + ', step ' + k + ': ', sum = { [run.root]: run.start };
    run.steps.slice(0, k).forEach(s => s.sends.forEach(x => { sum[x.row] = x.sum; }));
    const line = 'step ' + k + ' of ' + run.steps.length + ', node ' + step.line;
    check(textOf('line') === line, at + 'the line is ' + textOf('line') + ', not ' + line);
    check(all('#log .now').map(e => e.textContent).join() === step.line, at + 'the log marks another line');
    check(all('svg .node.now').map(e => e.id).join() === 'n' + step.row, at + 'another box is marked');
    check(step.sends.length > 0 && step.sends.every(x => textOf('t' + step.row + '-' + x.wire) === cut(x.sent)),
        at + 'other numbers on the wires');
    run.rows.forEach(row => {
        const has = row in sum ? sum[row] : '-';
        check(textOf('c' + row) === has && textOf('g' + row) === 'grad ' + cut(has),
            at + 'the sum of row ' + row + ' is ' + textOf('c' + row) + ', not ' + has);
    });
}

/* The page has text in its field: it says what the native program says. */
function checkAnswer({ text, answer }) {
    const what = text.replace(/\n/g, '; '), end = answer.indexOf('\n'), said = JSON.parse(answer.slice(0, end));
    check(find('text').value === text, what + ': the field has ' + find('text').value);
    check(ask('web_play') === answer, what + ': not the bytes of the native program');
    check(find('player').classList.contains('stale') === Boolean(said.error), what + ': the drawing is dimmed or not');
    check(find('text').getAttribute('aria-invalid') === String(Boolean(said.error)), what + ': aria-invalid');
    check(find('numbers').disabled === Boolean(said.error), what + ': the sliders are disabled or not');
    if (said.error) {
        const lines = textOf('error').split('\n'), before = decode(encode(text).slice(0, said.at));
        check(lines[0] === said.error, what + ': the error is ' + lines[0] + ', not ' + said.error);
        check(lines[1] === text.split('\n')[before.split('\n').length - 1], what + ': the error shows ' + lines[1]);
        check(lines[2].length === before.split('\n').pop().length + 1, what + ': the mark: ' + lines[2]);
        return;
    }
    check(textOf('error') === '', what + ': the error is ' + textOf('error'));
    const page = new DOMParser().parseFromString(answer.slice(end + 1), 'text/html');
    const run = JSON.parse(page.getElementById('run').textContent);
    check(run.steps.length > 0 && find('log').children.length === run.steps.length, what + ': other steps');
    const sliders = Array.from(find('numbers').children);
    const labels = said.leaves.map(leaf => leaf.name + Number(leaf.value.toPrecision(6)));
    check(sliders.map(e => e.textContent).join() === labels.join(), what + ': sliders: ' + find('numbers').textContent);
    check(sliders.every((e, i) => Math.abs(e.querySelector('input').value - said.leaves[i].value) <= 0.005),
        what + ': a slider is at another number');
    find('first').click();
    check(textOf('line').includes('the value is ' + said.value + ';'), what + ': ' + textOf('line'));
    for (let k = 1; k <= run.steps.length; ++k) {
        find('next').click();
        checkStep(what, run, k);
    }
}

/* What binds how: the native program has the same parser, so that it cannot tell. */
const values = [[3, '-x^2', '-9'], [2, '3^x^2', '81'], [2, '(3^x)^2*1', '81'], [7, '1 - x - 2', '-8'],
    [3, '12/x/2', '2'], [3, '2*-x', '-6'], [4, 'x^-1', '0.25'], [3, '(1 + x)*3', '12'], [3, '1 + x*3', '10'],
    [3, '2 - 3*x', '-7'], [3, '2*3*x/9', '2'], [-3, 'relu(x) + 1', '1'], [3, 'y = 2; y*x', '6'],
    [0, 'exp(x) + cos(x) + tanh(x)', '2'],
    [9, 'sqrt(x) - log(x/9) - sin(0)', '3'], [0, 'sigmoid(x)', '0.5'], [0, 'x/x', 'nan']];

function checkExpressions() {
    cases.forEach(one => {
        if (one.slider === undefined) setText(one.text);
        else drag(one.slider, one.number);
        checkAnswer(one);
    });
    expressions.forEach(([name], i) => {
        find('pick').value = i;
        find('pick').dispatchEvent(new Event('change'));
        check(textOf('error') === '' && data.steps.length > 1 && at === 0, name + ': ' + textOf('error'));
    });
    find('last').click(); /* of micrograd's README, whose numbers are known */
    const gradient = name => all('tbody tr').find(e => e.children[2].textContent === name).children[5].textContent;
    check(value === '24.7041' && gradient('a') === '138.8' && gradient('b') === '645.6', 'micrograd: ' + value);
    values.forEach(([x, expression, is]) => {
        setText('x = ' + x + '\n' + expression);
        check(value === is, expression + ' at x = ' + x + ' is ' + value + ', not ' + is);
    });
    setText('x = 1; x*' + '1'.repeat(4000));
    check(textOf('error').startsWith('this is too long'), 'too long: ' + textOf('error').slice(0, 80));
    setText('x = 2\ny = x*x*x');
    find('last').click();
    drag(0, 3); /* the step stays while a number is dragged */
    check(at === 2 && textOf('line').endsWith('now 27'), 'dragged at the last step: ' + textOf('line'));
    let bytes = 0;
    for (let i = 0; i < 300; ++i) {
        drag(0, i / 100);
        if (i === 50) bytes = library.memory.buffer.byteLength;
    }
    check(library.memory.buffer.byteLength === bytes, 'the memory grows from ' + bytes + ' as a number is dragged');
    drag(0, 3);
}

async function checkKeys() {
    const is = (k, what) => check(at === k, what + ': at ' + at);
    show(0);
    press('ArrowRight'); is(1, 'right');
    press('ArrowLeft'); is(0, 'left');
    press('End'); is(0, 'End belongs to the page');
    find('text').focus(); press('ArrowRight'); is(0, 'an arrow in the text'); find('text').blur();
    find('at').focus(); press('ArrowRight'); is(0, 'an arrow on the slider'); find('at').blur();
    find('view').focus(); press('End'); is(2, 'End in the drawing'); press('Home'); is(0, 'Home in the drawing');
    press(' '); is(1, 'play begins with a step'); check(textOf('play') === 'Pause', 'Play says Pause');
    await wait(1600); is(2, 'played');
    await wait(1600); check(textOf('play') === 'Play', 'played to the end');
    find('view').blur();
    check(all('button, input, select, textarea').every(e => e.textContent || e.labels.length === 1), 'all have a name');
}

/* The two lines of text say the numbers of the native program, and the map its sides. */
async function checkMoons() {
    const numbers = moonLines.filter(line => line.startsWith('{')).map(line => JSON.parse(line));
    const is = k => {
        const wanted = numbers[k];
        check(['step', 'of', 'loss', 'accuracy'].every(key => state[key] === wanted[key]),
            'moons: ' + JSON.stringify(state));
        check(textOf('progress') === 'step ' + k + ' of 200: loss ' + wanted.loss.toFixed(4) + ', accuracy ' +
            wanted.accuracy.toFixed(3), 'moons: ' + textOf('progress'));
    };
    find('anew').click();
    is(0);
    for (let k = 1; k <= 20; ++k) {
        find('one').click();
        is(k);
    }
    const has = Array.from(elements(Float32Array, library.web_moons_map(12, 8), 96));
    const wanted = moonLines.filter(line => !line.startsWith('{')).join(' ').trim().split(/ +/).map(Math.fround);
    check(wanted.length === 96 && has.every((x, i) => x === wanted[i]), 'moons: another map');
    drawMap();
    has.forEach((score, i) => { /* the ground at the middle of a cell, but for where a point covers it */
        const x = (i % 12) * 70 + 35, y = Math.floor(i / 12) * 67.5 + 34;
        const [r, , b] = find('map').getContext('2d').getImageData(x, y, 1, 1).data;
        if (Math.abs(score) > 0.3) check(b > r === score > 0, 'moons: cell ' + i + ' has ' + [score, r, b]);
    });
    window.requestAnimationFrame = f => setTimeout(f, 16); /* without a screen Chromium has no frames */
    window.cancelAnimationFrame = clearTimeout;
    find('train').click();
    check(textOf('train') === 'Pause', 'Train says Pause');
    for (let k = 0; k < 100 && state.step < 30; ++k) await wait(20);
    find('train').click();
    const paused = state.step;
    await wait(200);
    check(state.step === paused && paused >= 30 && paused < 200, 'moons: paused at ' + paused + ', ' + state.step);
    is(paused);
    find('train').click();
    for (let k = 0; k < 1000 && state.step < 200; ++k) await wait(20);
    is(200);
    check(find('train').disabled && find('one').disabled && textOf('train') === 'Train', 'moons: the end');
    check(textOf('said') === textOf('progress'), 'moons: what is said aloud is ' + textOf('said'));
    find('anew').click();
    is(0);
}

function checkLook() {
    const style = s => getComputedStyle(document.querySelector(s)), ground = style('body').backgroundColor;
    setText('x = 2\ny = x*x');
    show(1);
    checkColours([['text', style('body').color, ground], ['a mistake', style('#error').color, ground],
        ['a button', style('#first').color, style('#first').backgroundColor],
        ['the field', style('#text').color, style('#text').backgroundColor],
        ['the marked row', style('tr.now').color, style('tr.now').backgroundColor],
        ['a number on a wire', style('.sent').fill, style('.paper').fill]]);
    check(performance.getEntriesByType('resource').length === 0, 'the page loads something');
}

report(ready.then(async () => {
    checkExpressions();
    await checkKeys();
    await checkMoons();
    checkLook();
}));
