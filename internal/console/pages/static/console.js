// The pages are whole without this file. It keeps the overview fresh, counts a selection, and listens to a few keys.
'use strict';

const $ = (selector) => document.querySelector(selector);

// The overview is fetched anew and replaces the old one, unless the user has selected text or the page is hidden.
async function refresh() {
  if (document.hidden || String(getSelection())) return;
  try {
    const answer = await fetch(location.pathname + location.search, { headers: { Accept: 'text/html' } });
    if (!answer.ok) throw new Error(`the overview says ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const [main, footer] = [fresh.querySelector('main'), fresh.querySelector('footer')];
    if (fresh.body.dataset.page === 'login') return location.reload(); // the session has ended
    if (!main || !footer) throw new Error('this is not the overview'); // a proxy's page, such as one to log in
    const focused = document.activeElement?.getAttribute('href');
    $('main').replaceWith(main);
    $('footer').replaceWith(footer);
    document.title = fresh.title;
    document.body.classList.remove('stale');
    if (focused) [...document.querySelectorAll('main a')].find((a) => a.getAttribute('href') === focused)?.focus();
  } catch {
    document.body.classList.add('stale');
  }
}

// Boxes of a list: how many are ticked, and all of them at once.
function boxes() {
  return [...document.querySelectorAll('.messages tbody input[type=checkbox]')];
}

function tell() {
  const n = boxes().filter((box) => box.checked).length;
  const picked = $('#picked');
  if (picked) picked.textContent = n ? `${n} selected:` : 'Selected:';
  for (const button of document.querySelectorAll('#list .bar button')) button.disabled = n === 0;
}

// step moves the focus through the rows of a list.
function step(by) {
  const links = [...document.querySelectorAll('.messages tbody th a')];
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
  x: () => { document.activeElement?.closest('tr')?.querySelector('input')?.click(); },
};

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') document.activeElement?.blur();
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches('input:not([type=checkbox]), textarea, select')) return;
  const act = keys[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

const all = $('#pick-all');
if (all) {
  all.hidden = false;
  all.addEventListener('change', () => {
    for (const box of boxes()) box.checked = all.checked;
    tell();
  });
  $('#list').addEventListener('change', tell);
  tell();
}

if (document.body.dataset.page === 'overview') setInterval(refresh, 5000);
