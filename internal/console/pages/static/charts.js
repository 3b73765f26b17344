// Charts show the values under the pointer, and by the arrow keys. Without this file each chart has a table of values.
'use strict';

(() => {
  let shown = null; // the chart and the step whose values are shown; they outlive a refresh of the page

  const charts = () => [...document.querySelectorAll('.chart')];

  // words writes the time of a step.
  function words(chart, step) {
    const at = new Date(Number(chart.dataset.start) + step * Number(chart.dataset.step));
    const text = timeText(at);
    const zone = text.split(' ')[2];
    return Number(chart.dataset.step) < 60000 ? `${text.slice(11, 19)} ${zone}` : `${text.slice(0, 16)} ${zone}`;
  }

  // writeTicks writes the axis in the zone that the reader has chosen. A label that is a day moves to its local start.
  function writeTicks(chart) {
    const start = Number(chart.dataset.start);
    const span = Number(chart.dataset.step) * lines(chart)[0].values.length;
    for (const tick of chart.querySelectorAll('.times text')) {
      let at = new Date(Number(tick.dataset.at));
      if (tick.textContent.includes(':')) {
        tick.textContent = timeText(at).slice(11, 16);
        continue;
      }
      if (choices.local) at = new Date(at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate());
      const place = (100 * (at - start)) / span;
      tick.setAttribute('x', `${place}%`);
      tick.style.display = place < 0 || place > 100 ? 'none' : '';
    }
  }

  function lines(chart) {
    return [...chart.querySelectorAll('.legend li')].map((line) => ({
      kind: line.className, name: line.dataset.name, values: line.dataset.values.split('|').slice(0, -1),
    }));
  }

  function hide() {
    document.querySelectorAll('.at, .read-out').forEach((mark) => mark.remove());
  }

  // show puts a line at a step, and its values beside the line.
  function show(chart, step) {
    hide();
    const all = lines(chart);
    const steps = all[0].values.length;
    step = Math.min(steps - 1, Math.max(0, step));
    const plot = chart.querySelector('.plot');
    const place = (100 * (step + 0.5)) / steps;
    const at = document.createElement('div');
    at.className = 'at';
    at.style.left = `${place}%`;
    const out = document.createElement('p');
    out.className = 'read-out';
    out.style[place < 50 ? 'left' : 'right'] = `calc(${place < 50 ? place : 100 - place}% + .5rem)`;
    out.append(words(chart, step));
    for (const line of all) {
      const row = document.createElement('span');
      row.className = line.kind;
      row.textContent = `${line.name} ${line.values[step] || 'no value'}`;
      out.append(row);
    }
    plot.append(at, out);
    shown = { chart: charts().indexOf(chart), step };
    return out;
  }

  // speak has a screen reader say the values.
  function speak(chart, text) {
    chart.querySelector('.spoken').textContent = text;
  }

  function prepare() {
    for (const chart of charts()) {
      const plot = chart.querySelector('.plot');
      if (plot.tabIndex === 0) continue;
      plot.tabIndex = 0;
      plot.setAttribute('role', 'group');
      plot.setAttribute('aria-label', `${chart.querySelector('figcaption').textContent}: arrow keys show the values`);
      const spoken = document.createElement('span');
      spoken.className = 'spoken skip';
      spoken.setAttribute('aria-live', 'polite');
      chart.append(spoken);
      writeTicks(chart);
    }
    writeWindow();
  }

  // The form of a free window has the zone that the reader has chosen. The coordinator reads UTC.
  function writeWindow() {
    for (const input of document.querySelectorAll('.window input[data-at]')) {
      const untouched = input.value === input.defaultValue;
      input.defaultValue = timeText(new Date(input.dataset.at)).slice(0, 16);
      if (untouched) input.value = input.defaultValue;
    }
  }

  document.addEventListener('times', () => { charts().forEach(writeTicks); writeWindow(); });

  document.addEventListener('pointermove', (event) => {
    const plot = event.target.closest?.('.plot');
    if (!plot) {
      if (shown && !document.activeElement?.closest('.plot')) { hide(); shown = null; }
      return;
    }
    const chart = plot.closest('.chart');
    const box = plot.getBoundingClientRect();
    show(chart, Math.floor(((event.clientX - box.left) / box.width) * lines(chart)[0].values.length));
  });

  document.addEventListener('keydown', (event) => {
    const plot = event.target.closest?.('.plot');
    if (!plot || event.altKey || event.ctrlKey || event.metaKey) return;
    const chart = plot.closest('.chart');
    const steps = lines(chart)[0].values.length;
    const now = shown?.chart === charts().indexOf(chart) ? shown.step : steps;
    const far = Math.round(steps / 12);
    const to = {
      ArrowLeft: now - 1, ArrowRight: now + 1, PageDown: now - far, PageUp: now + far, Home: 0, End: steps - 1,
    }[event.key];
    if (event.key === 'Escape') { hide(); shown = null; }
    if (to === undefined) return;
    event.preventDefault();
    speak(chart, [...show(chart, to).childNodes].map((part) => part.textContent).join(', '));
  });

  document.addEventListener('focusout', (event) => {
    if (event.target.closest?.('.plot') && event.target.isConnected) { hide(); shown = null; }
  });

  // A refresh replaces the page: the marks come back, and so does the focus.
  let focused = -1;
  document.addEventListener('focusin', (event) => {
    focused = charts().indexOf(event.target.closest?.('.chart'));
  });
  new MutationObserver((changes) => {
    if (!changes.some((change) => [...change.addedNodes].some((node) => node.id === 'main'))) return;
    prepare();
    const again = shown;
    const plot = charts()[focused]?.querySelector('.plot');
    if (document.activeElement === document.body) plot?.focus({ preventScroll: true });
    if (again && charts()[again.chart]) show(charts()[again.chart], again.step);
  }).observe(document.body, { childList: true });
  prepare();
})();
