// The pages are whole without this file. It keeps them fresh, writes local times, counts a selection, and listens to a
// few keys.
'use strict';

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// Choices are remembered in the browser. Where it keeps nothing they hold until the page is left.
const choices = {};
function choose(name, on) {
  choices[name] = on;
  try { localStorage.setItem(`msghandler.${name}`, on ? '1' : '0'); } catch { /* forbidden by the reader */ }
}
for (const name of ['paused', 'local', 'mute']) {
  try { choices[name] = localStorage.getItem(`msghandler.${name}`) === '1'; } catch { choices[name] = false; }
}

// Times.
const two = (n) => String(n).padStart(2, '0');
function localTime(date) {
  const zone = -date.getTimezoneOffset();
  const offset = `${zone < 0 ? '-' : '+'}${two(Math.floor(Math.abs(zone) / 60))}:${two(Math.abs(zone) % 60)}`;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.` +
    `${String(date.getMilliseconds()).padStart(3, '0')} ${offset}`;
}
const utcTime = (date) => `${date.toISOString().slice(0, 23).replace('T', ' ')} UTC`;

const timeText = (date) => (choices.local ? localTime(date) : utcTime(date));

// An element with a title has a span of time as its text, any other a time. The script of the charts writes theirs.
function writeTimes() {
  for (const element of $$('time[datetime]')) {
    const text = timeText(new Date(element.dateTime));
    if (element.title) element.title = text;
    else element.textContent = element.matches('.minute') ? text.slice(0, 16) : text;
  }
  for (const element of $$('.zone')) element.textContent = choices.local ? 'local time' : 'UTC';
  document.dispatchEvent(new Event('times'));
}

// toUTC reads a local time, or the start of a local day. A time without a day has none afterwards either: the
// coordinator knows which day is meant. Another text stays, and so does a time with its zone.
function toUTC(text) {
  const parts = /^(?:(\d{4})-(\d\d)-(\d\d)(?:[ T]|$))?(?:(\d\d?):(\d\d)(?::(\d\d))?)?$/.exec(text.trim());
  if (!parts || !(parts[1] || parts[4])) return text;
  const [year, month, day, hour, minute, second] = parts.slice(1).map((part) => Number(part ?? 0));
  const now = new Date();
  const at = parts[1] ? new Date(year, month - 1, day, hour, minute, second)
    : new Date(now.getFullYear(), now.getMonth(), now.getDate(), hour, minute, second);
  return `${utcTime(at).slice(parts[1] ? 0 : 11, second ? 19 : 16)}Z`;
}
document.addEventListener('submit', (event) => {
  if (!choices.local) return;
  for (const input of $$('[name=from], [name=since], [name=until]', event.target)) {
    if (input.type !== 'hidden') input.value = toUTC(input.value);
  }
});

// The refresh: the page is fetched anew and replaces the old one, unless the user has selected text, writes, or has
// paused the refresh, or the page is hidden. What the user has ticked, unfolded and focused stays.
const refreshes = 'refreshes' in document.body.dataset;

// busy says that a refresh would disturb: text is selected or being written, or a filter is not sent yet.
function busy() {
  return document.hidden || choices.paused || $('dialog[open]') || String(getSelection()) ||
    $$('main input:not([type=checkbox], [type=hidden])').some((input) =>
      input === document.activeElement || input.value !== input.defaultValue);
}

// handle names an element so that the same one is found on the fresh page.
function handle(element) {
  if (!element || !$('main').contains(element)) return null;
  if (element.id) return `#${CSS.escape(element.id)}`;
  if (element.matches('a[href]')) return `a[href="${CSS.escape(element.getAttribute('href'))}"]`;
  if (element.matches('input[name=name]')) return `input[name=name][value="${CSS.escape(element.value)}"]`;
  if (element.matches('button[value]')) return `button[value="${CSS.escape(element.value)}"]`;
  return null;
}

// keyOf names details by their place in an entry and by the text of the entry: an entry may have several.
const keyOf = (details) => {
  const entry = details.parentElement;
  return [...entry.children].indexOf(details) + entry.textContent.slice(0, 60);
};

function keep() {
  const top = $$('.messages tbody tr').find((row) => row.getBoundingClientRect().top >= 0);
  return {
    ticked: new Set(boxes().filter((box) => box.checked).map((box) => box.value)),
    open: new Set($$('main details[open]').map(keyOf)),
    focus: handle(document.activeElement),
    // The place of the first row in sight, or the page would jump when rows above it go.
    row: top && handle($('th a', top)), at: top?.getBoundingClientRect().top,
  };
}

function restore(kept) {
  for (const box of boxes()) box.checked = kept.ticked.has(box.value);
  for (const details of $$('main details')) if (kept.open.has(keyOf(details))) details.open = true;
  if (kept.focus) $(`main ${kept.focus}`)?.focus({ preventScroll: true });
  const row = kept.row && $(`main ${kept.row}`)?.closest('tr');
  if (row && scrollY > 0) scrollBy(0, row.getBoundingClientRect().top - kept.at);
}

async function refresh() {
  if (busy()) return;
  try {
    const answer = await fetch(location.pathname + location.search, { headers: { Accept: 'text/html' } });
    if (!answer.ok) throw new Error(`the page says ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const [main, footer] = [$('main', fresh), $('footer', fresh)];
    if (fresh.body.dataset.page === 'login') return location.reload(); // the session has ended
    if (!main || !footer) throw new Error('this is not the page'); // a proxy's page, such as one to log in
    if (busy()) return;
    const kept = keep();
    $('main').replaceWith(main);
    $('footer').replaceWith(footer);
    document.title = fresh.title;
    document.body.classList.remove('stale');
    prepare();
    restore(kept);
    tell();
  } catch {
    document.body.classList.add('stale');
  }
}

// Boxes of a list: how many are ticked, and all of them at once.
function boxes() {
  return $$('.messages tbody input[type=checkbox]');
}

function tell() {
  const n = boxes().filter((box) => box.checked).length;
  const picked = $('#picked');
  if (picked) picked.textContent = n ? `${n} selected:` : 'Selected:';
  for (const button of $$('#list .bar button')) button.disabled = n === 0;
  const all = $('#pick-all');
  if (all) all.checked = n > 0 && n === boxes().length;
}

// prepare makes a page that came without the script fit for it.
function prepare() {
  writeTimes();
  const all = $('#pick-all');
  if (all) all.hidden = false;
}

// show writes the choices onto their buttons.
function show() {
  const pause = $('#pause');
  if (pause) {
    pause.setAttribute('aria-pressed', choices.paused);
    pause.textContent = choices.paused ? 'Resume' : 'Pause';
  }
  document.body.classList.toggle('paused', refreshes && choices.paused);
  $('#zone')?.setAttribute('aria-pressed', choices.local);
  if ($('#keys-on')) $('#keys-on').checked = !choices.mute;
  writeTimes();
}

function pause() {
  if (!refreshes) return;
  choose('paused', !choices.paused);
  show();
  refresh();
}

// step moves the focus through the rows of a list.
function step(by) {
  const links = $$('#list tbody th a, main > .messages tbody th a');
  if (!links.length) return;
  const row = document.activeElement?.closest('tr');
  const at = links.findIndex((link) => link.closest('tr') === row);
  links[Math.min(links.length - 1, Math.max(0, at + by))].focus();
}

const keys = {
  '/': () => { $('#find').focus(); },
  g: () => { location.href = '/'; },
  m: () => { location.href = '/messages'; },
  j: () => step(1),
  k: () => step(-1),
  n: () => { $('#next')?.click(); },
  p: pause,
  x: () => { $('input', document.activeElement?.closest('#list tr'))?.click(); },
  '?': () => { $('#help')?.showModal(); },
};

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') document.activeElement?.blur();
  if (choices.mute || event.ctrlKey || event.metaKey || event.altKey || $('dialog[open]')) return;
  if (event.target.matches('input:not([type=checkbox]), textarea, select')) return;
  const act = keys[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

document.addEventListener('change', (event) => {
  if (event.target.id === 'pick-all') for (const box of boxes()) box.checked = event.target.checked;
  if (event.target.id === 'keys-on') choose('mute', !event.target.checked);
  tell();
});

const tools = $('.tools');
if (tools) {
  tools.hidden = false;
  $('#pause')?.addEventListener('click', pause);
  $('#zone').addEventListener('click', () => {
    choose('local', !choices.local);
    show();
  });
  $('#help-open').addEventListener('click', keys['?']);
}
prepare();
show();
tell();

// A list costs Redis more than the overview does.
if (refreshes) setInterval(refresh, document.body.dataset.page === 'overview' ? 5000 : 10000);
