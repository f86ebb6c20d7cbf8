/* The page of a figure: a Vega view with pan, zoom, picking, filters, notes and exports. It sends no request. */
(function () {
  'use strict';
  const byId = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(byId(id).textContent);
  const NEAR = 12; /* pixels from a point that count as on it */
  const LISTED = 100; /* rows of the list */
  const SHARED = ['roofs', 'ridges'];
  const PLACED = ['lines', 'arrows', 'leaders', 'names', 'labels']; /* they differ between the layouts */

  function start() {
    const page = read('roofline-page'), lite = read('roofline-vega-lite'), base = read('roofline-vega');
    const state = read('roofline-state'); /* what Save page keeps: notes and the view */
    const points = lite.datasets.kernels; /* one for each kernel and memory level */
    const kernels = [];
    page.kernel_of_point.forEach((kernel, at) => { (kernels[kernel] = kernels[kernel] || []).push(at); });
    const first = (kernel) => points[kernels[kernel][0]];
    const drawing = byId('drawing');
    let shown = kernels.map(() => true), level = '', tool = '', picked = null, view = null, layout = null;
    let embedded = null;
    const embed = (node, spec) => vegaEmbed(node, spec, { mode: 'vega', renderer: 'svg', actions: false, tooltip: false, hover: false, defaultStyle: false });
    let sort = { key: '', down: true };

    /* ---- numbers and the row of one kernel ---- */
    function form(value, spec) {
      if (Array.isArray(value)) { return value.map((one) => form(one, spec)).join(' to '); }
      if (typeof value === 'boolean') { return value ? 'yes' : 'no'; }
      if (typeof value !== 'number') { return String(value); }
      const found = /^\.(\d+)([fg])$/.exec(spec || '.6g');
      if (found && found[2] === 'f') { return value.toFixed(+found[1]); }
      return String(+value.toPrecision(found ? +found[1] : 6));
    }
    function quantity(value, unit) {
      if (unit === 'FLOP/B') { return form(value, '.4g') + ' ' + unit; }
      const step = value ? Math.max(0, Math.min(6, Math.floor(Math.log10(Math.abs(value) * 1.00005) / 3))) : 0;
      return form(value / Math.pow(1000, step), '.4g') + ' ' + ['', 'k', 'M', 'G', 'T', 'P', 'E'][step] + unit;
    }
    function duration(ms) {
      const [value, unit] = ms >= 1000 ? [ms / 1000, 's'] : ms >= 1 ? [ms, 'ms'] : ms >= 1e-3 ? [ms * 1e3, 'us'] : [ms * 1e6, 'ns'];
      return form(value, '.4g') + ' ' + unit;
    }
    function cell(column, kernel) {
      const values = page.columns[column];
      if (!values) { return undefined; }
      if (!values.at) { return Array.isArray(values.all) && typeof values.all[0] === 'string' ? values.all.join('; ') : values.all; }
      const value = values.at[kernel];
      return values.words && value !== null ? value.map((at) => values.words[at]).join('; ') : value;
    }
    function cellText(key, value) {
      const [, , unit, spec] = page.fields[key] || ['', '', '', ''];
      if (typeof value === 'number' && /^(B|FLOP)/.test(unit)) { return quantity(value, unit); }
      if (typeof value === 'number' && unit === 'ms') { return duration(value); }
      return form(value, spec) + (unit && unit !== '%' && unit !== 'x' ? ' ' : '') + unit;
    }
    function summary(kernel) { /* what hovering shows */
      const point = first(kernel), time = cell('t_unit_ms', kernel);
      return [
        ['', point.of_roof + (/%$/.test(point.of_roof) ? ' of roof' : ''), ''],
        ['time', typeof time === 'number' ? duration(time) : '', ''],
        ['intensity', form(point.intensity, '.4g') + ' FLOP/B', ''],
        ['rate', form(point.rate, '.4g') + ' ' + page.unit, ''],
        ['verdict', point.verdict === 'kernel' ? '' : point.verdict + (point.reason ? ' (' + point.reason + ')' : ''), ''],
      ].filter((line) => line[1]);
    }
    function details(kernel) {
      const point = first(kernel), lines = [['kernel', page.names[kernel], ''], ['percent of roof', point.of_roof, '']];
      [['interval', 'range'], ['bound', 'limiter'], ['below', 'what that means'], ['verdict', 'verdict'], ['reason', 'reason'],
        ['basis', 'basis'], ['dtype', 'dtype']].forEach(([key, word]) => {
        if (point[key] !== undefined && point[key] !== 'kernel') { lines.push([word, point[key], '']); }
      });
      if (point.share !== undefined) { lines.push(['share of time', form(point.share, '.4g') + '%', '']); }
      kernels[kernel].forEach((at) => {
        const one = points[at];
        lines.push(['intensity' + (one.level ? ' at ' + one.level : ''), form(one.intensity, '.4g') + ' FLOP/B', '']);
      });
      lines.push(['attained', form(point.rate, '.4g') + ' ' + page.unit, '']);
      Object.keys(page.columns).forEach((key) => {
        const value = cell(key, kernel);
        if (value === null || value === undefined || value === '' || (Array.isArray(value) && !value.length)) { return; }
        const field = page.fields[key] || [key.replace(/_/g, ' '), '', '', ''];
        lines.push([field[0], cellText(key, value), field[1]]);
      });
      return lines;
    }
    function pick(kernel) {
      picked = kernel;
      const list = document.createElement('dl');
      details(kernel).forEach(([word, text, title]) => {
        const term = document.createElement('dt'), definition = document.createElement('dd');
        term.textContent = word;
        definition.textContent = text;
        if (title) { term.title = title; }
        list.append(term, definition);
      });
      byId('row-content').replaceChildren(list);
      byId('row-content').className = '';
      byId('row').dataset.kernel = kernel;
      document.querySelectorAll('#kernels-body tr').forEach((row) => {
        row.classList.toggle('picked', +row.dataset.kernel === kernel);
      });
      view.data('picked', marked()).run();
    }
    const marked = () => (picked === null ? [] : kernels[picked].map((at) => ({ x: points[at].intensity, y: points[at].rate })));

    /* ---- the rows that are drawn ---- */
    function isBinding(kernel) { return !level || first(kernel).level === level; }
    function rows() {
      const placed = page.layouts[layout];
      const ofKernel = (row) => row.k === undefined || (shown[row.k] && isBinding(row.k));
      const drawn = points.map((one, at) => ({
        k: page.kernel_of_point[at], at, x: one.intensity, y: one.rate, size: one.area,
        shape: page.shapes[one.bound], fill: page.fills[one.verdict], tip: one.name + ': ' + one.of_roof,
      })).filter((row) => shown[row.k] && (!level || points[row.at].level === level));
      drawn.sort((a, b) => b.size - a.size); /* small ones on top */
      const data = { kernels: drawn, picked: marked(), notes: state.notes };
      SHARED.forEach((name) => { data[name] = page.shared[name]; });
      PLACED.forEach((name) => { data[name] = placed[name].filter(ofKernel); });
      data.lines = data.lines.filter((row) => !level || row.kind !== 'levels');
      data.names = placed.names.filter((row) => row.k === undefined ||
        (shown[row.k] && (!level || row.level.toUpperCase() === level)));
      return data;
    }
    function redraw() {
      const data = rows();
      Object.keys(data).forEach((name) => { view.data(name, data[name]); });
      view.run();
      list();
    }

    /* ---- the view ---- */
    function ticks(low, high) { /* decades; fewer when there are many, with 2 and 5 between them when there are few */
      const a = Math.floor(Math.log10(low)), b = Math.ceil(Math.log10(high)), step = Math.max(1, Math.ceil((b - a) / 12));
      const between = (one) => one >= low && one <= high;
      let values = [];
      for (let power = a; power <= b; power += step) { values.push(+('1e' + power)); }
      if (values.filter(between).length < 3) {
        values = [];
        for (let power = a; power <= b; power += 1) { [1, 2, 5].forEach((digit) => values.push(+(digit + 'e' + power))); }
      }
      values = values.filter(between);
      return values.length > 1 ? values : [low * Math.pow(high / low, 0.25), low * Math.pow(high / low, 0.75)].map((one) => +one.toPrecision(3));
    }
    function setDomain(x, y) {
      const wide = Math.log10(x[1] / x[0]), high = Math.log10(y[1] / y[0]);
      if (!(wide > 0.02 && wide < 40 && high > 0.02 && high < 40)) { return; }
      view.signal('xdom', x).signal('ydom', y).signal('xticks', ticks(x[0], x[1])).signal('yticks', ticks(y[0], y[1])).run();
      tip([]);
    }
    function domains() { return { x: view.signal('xdom').slice(), y: view.signal('ydom').slice() }; }
    function frame() { /* the frame on the screen */
      const box = drawing.querySelector('svg').getBoundingClientRect(), pad = page.layouts[layout].padding;
      return { x: box.left + pad.left, y: box.top + pad.top, w: view.width(), h: view.height() };
    }
    function inFrame(event) {
      const f = frame();
      return event.clientX >= f.x && event.clientX <= f.x + f.w && event.clientY >= f.y && event.clientY <= f.y + f.h;
    }
    function at(clientX, clientY) { /* the place under a pixel */
      const f = frame();
      return { x: view.scale('x').invert(clientX - f.x), y: view.scale('y').invert(clientY - f.y) };
    }
    function shift(from, dx, dy) { /* the domains moved by pixels */
      const f = frame();
      const fx = Math.pow(from.x[1] / from.x[0], -dx / f.w), fy = Math.pow(from.y[1] / from.y[0], dy / f.h);
      setDomain(from.x.map((one) => one * fx), from.y.map((one) => one * fy));
    }
    function zoom(factor, place) { /* the place keeps its pixel */
      const now = domains();
      const scaled = (ends, anchor) => ends.map((one) => anchor * Math.pow(one / anchor, factor));
      setDomain(scaled(now.x, place.x), scaled(now.y, place.y));
    }
    function reset() { setDomain(page.layouts[layout].xdom.slice(), page.layouts[layout].ydom.slice()); }
    function chosen() {
      const names = Object.keys(page.layouts).sort((a, b) => page.layouts[a].width - page.layouts[b].width);
      const fitting = names.filter((name) => page.layouts[name].width <= drawing.clientWidth);
      return fitting.length ? fitting[fitting.length - 1] : names[0];
    }
    function size() { /* the frame fills the window, and is never smaller than its layout */
      const one = page.layouts[layout], pad = one.padding;
      const width = Math.max(one.width, drawing.clientWidth);
      const room = Math.min(window.innerHeight - 190, width * 0.72);
      return { w: width - pad.left - pad.right, h: Math.max(one.height, room) - pad.top - pad.bottom };
    }
    function specification(name) { /* the drawing of a layout with all its rows */
      const one = page.layouts[name], spec = JSON.parse(JSON.stringify(base));
      spec.padding = one.padding;
      const values = { xdom: one.xdom, ydom: one.ydom, xticks: ticks(...one.xdom), yticks: ticks(...one.ydom) };
      spec.signals.forEach((signal) => { if (values[signal.name]) { signal.value = values[signal.name]; } });
      return spec;
    }
    async function build() {
      const old = view && layout === chosen() ? null : view && domains();
      const moved = view && !isWhole();
      layout = chosen();
      const spec = specification(layout), wanted = size();
      spec.width = wanted.w;
      spec.height = wanted.h;
      spec.background = 'transparent'; /* the page is the paper, light or dark */
      const data = rows();
      spec.data.forEach((one) => { one.values = data[one.name]; });
      const last = embedded;
      embedded = await embed(drawing, spec);
      view = embedded.view;
      if (last) { last.finalize(); }
      if (moved && old) { setDomain(old.x, old.y); }
    }
    function isWhole() {
      const now = domains(), one = page.layouts[layout];
      return now.x[0] === one.xdom[0] && now.x[1] === one.xdom[1] && now.y[0] === one.ydom[0] && now.y[1] === one.ydom[1];
    }
    let waiting = 0;
    window.addEventListener('resize', () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        if (chosen() !== layout) { build(); return; }
        const wanted = size();
        view.width(wanted.w).height(wanted.h).run();
      }, 60);
    });

    /* ---- pointing ---- */
    function near(clientX, clientY) { /* the kernels under a pixel, the nearest first */
      const f = frame(), x = view.scale('x'), y = view.scale('y'), found = new Map();
      view.data('kernels').forEach((row) => {
        const far = Math.hypot(f.x + x(row.x) - clientX, f.y + y(row.y) - clientY);
        if (far <= Math.max(NEAR, Math.sqrt(row.size) / 2 + 2) && (!found.has(row.k) || far < found.get(row.k))) { found.set(row.k, far); }
      });
      return Array.from(found).sort((a, b) => a[1] - b[1]).map((pair) => pair[0]);
    }
    function tip(found, clientX, clientY) {
      const node = byId('tip');
      drawing.classList.toggle('near', found.length > 0);
      node.hidden = !found.length;
      if (!found.length) { return; }
      const parts = [];
      found.slice(0, 3).forEach((kernel, number) => {
        const name = document.createElement('b');
        name.textContent = page.names[kernel];
        parts.push(name);
        const lines = number ? [summary(kernel)[0]] : summary(kernel);
        lines.forEach(([word, text]) => {
          const line = document.createElement('div');
          line.textContent = (word ? word + ' ' : '') + text;
          parts.push(line);
        });
      });
      if (found.length > 3) { parts.push('and ' + (found.length - 3) + ' more'); }
      node.replaceChildren(...parts);
      const home = byId('figure').getBoundingClientRect();
      const left = Math.min(clientX - home.left + 14, home.width - node.offsetWidth - 4);
      const above = clientY - home.top - node.offsetHeight - 12;
      node.style.left = Math.max(4, left) + 'px';
      node.style.top = (above > 0 ? above : clientY - home.top + 16) + 'px';
    }
    let drag = null;
    drawing.addEventListener('pointerdown', (event) => {
      if (event.button || !inFrame(event)) { return; }
      drag = { x: event.clientX, y: event.clientY, from: domains(), far: false };
      if (tool === 'pan' || tool === 'zoom') { drawing.setPointerCapture(event.pointerId); }
    });
    drawing.addEventListener('pointermove', (event) => {
      if (!drag || !(tool === 'pan' || tool === 'zoom')) {
        tip(inFrame(event) ? near(event.clientX, event.clientY) : [], event.clientX, event.clientY);
        return;
      }
      const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
      drag.far = drag.far || Math.hypot(dx, dy) > 4;
      if (!drag.far) { return; }
      if (tool === 'pan') { shift(drag.from, dx, dy); return; }
      const home = byId('figure').getBoundingClientRect(), box = byId('box');
      box.hidden = false;
      box.style.left = Math.min(event.clientX, drag.x) - home.left + 'px';
      box.style.top = Math.min(event.clientY, drag.y) - home.top + 'px';
      box.style.width = Math.abs(dx) + 'px';
      box.style.height = Math.abs(dy) + 'px';
    });
    drawing.addEventListener('pointerup', (event) => {
      const was = drag;
      drag = null;
      byId('box').hidden = true;
      if (!was) { return; }
      if (was.far && tool === 'zoom') {
        const f = frame(), held = (value, low, size) => Math.min(Math.max(value, low), low + size);
        const a = at(was.x, was.y), b = at(held(event.clientX, f.x, f.w), held(event.clientY, f.y, f.h));
        setDomain([Math.min(a.x, b.x), Math.max(a.x, b.x)], [Math.min(a.y, b.y), Math.max(a.y, b.y)]);
      }
      if (was.far || !inFrame(event)) { return; }
      if (tool === 'note') { annotate(at(event.clientX, event.clientY)); return; }
      const found = near(event.clientX, event.clientY);
      if (found.length) { pick(found[(found.indexOf(picked) + 1) % found.length]); }
    });
    drawing.addEventListener('pointerleave', () => tip([]));
    drawing.addEventListener('wheel', (event) => {
      if (!(tool === 'pan' || tool === 'zoom') || !inFrame(event)) { return; }
      event.preventDefault();
      zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.002))), at(event.clientX, event.clientY));
    }, { passive: false });
    drawing.addEventListener('dblclick', () => { if (tool === 'pan' || tool === 'zoom') { reset(); } });
    function annotate(place) {
      const text = window.prompt('Text of the note');
      if (!text) { return; }
      state.notes.push({ x: place.x, y: place.y, text });
      view.data('notes', state.notes).run();
    }
    function choose(name) {
      tool = tool === name ? '' : name;
      drawing.dataset.tool = tool;
      document.querySelectorAll('#tools button[data-tool]').forEach((button) => {
        button.setAttribute('aria-pressed', String(button.dataset.tool === tool));
      });
    }
    document.querySelectorAll('#tools button[data-tool]').forEach((button) => {
      button.addEventListener('click', () => choose(button.dataset.tool));
    });
    byId('reset').addEventListener('click', reset);
    drawing.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) { return; }
      const step = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      const f = frame(), middle = at(f.x + f.w / 2, f.y + f.h / 2), moves = tool === 'pan' || tool === 'zoom';
      if (moves && step) {
        shift(domains(), step[0] * f.w / 8, step[1] * f.h / 8);
      } else if (moves && (event.key === '+' || event.key === '=')) {
        zoom(0.7, middle);
      } else if (moves && event.key === '-') {
        zoom(1 / 0.7, middle);
      } else if (moves && event.key === '0') {
        reset();
      } else if (event.key === 'Enter') {
        const order = listed();
        if (order.length) { pick(order[(order.indexOf(picked) + 1) % order.length]); }
      } else if (event.key === 'Escape') {
        if (tool) { choose(tool); }
        picked = null;
        view.data('picked', []).run();
      } else { return; }
      event.preventDefault();
    });

    /* ---- filters and the list, which reaches every kernel by keyboard ---- */
    function filter() {
      const dtype = byId('dtype').value, share = parseFloat(byId('share').value) || 0;
      const words = byId('search').value.trim().toLowerCase();
      level = byId('level').value;
      shown = kernels.map((_, kernel) => {
        const one = first(kernel);
        return (!dtype || (one.dtype || 'unknown') === dtype) && (share <= 0 || (one.share || 0) >= share) &&
          (!level || kernels[kernel].some((spot) => points[spot].level === level)) &&
          (!words || page.names[kernel].toLowerCase().includes(words));
      });
      redraw();
    }
    function options(id, values) {
      const select = byId(id);
      values.forEach((value) => {
        const option = document.createElement('option');
        option.value = option.textContent = value;
        select.append(option);
      });
      select.parentElement.hidden = values.length < 2;
    }
    const distinct = (values) => Array.from(new Set(values));
    options('dtype', distinct(points.map((one) => one.dtype || 'unknown')));
    options('level', distinct(points.map((one) => one.level || '')).filter(Boolean));
    byId('share').parentElement.hidden = !points.some((one) => one.share !== undefined);
    byId('kernels').querySelector('table').classList.toggle('timeless', byId('share').parentElement.hidden);
    byId('search').parentElement.hidden = kernels.length < 2;
    ['dtype', 'level', 'share', 'search'].forEach((id) => { byId(id).addEventListener('input', filter); });
    function listed() {
      const order = page.order.filter((kernel) => shown[kernel]);
      const value = { name: (kernel) => page.names[kernel].toLowerCase(), of_roof: (kernel) => page.fractions[kernel], share: (kernel) => first(kernel).share };
      if (!sort.key) { return order; }
      const of = value[sort.key], known = (one) => one !== undefined && one !== null;
      return order.slice().sort((a, b) => {
        const [x, y] = [of(a), of(b)];
        if (!known(x) || !known(y)) { return known(y) - known(x); }
        return (x < y ? -1 : x > y ? 1 : 0) * (sort.down ? -1 : 1);
      });
    }
    function list() {
      const order = listed(), body = byId('kernels-body');
      body.replaceChildren(...order.slice(0, LISTED).map((kernel) => {
        const one = first(kernel), row = document.createElement('tr'), button = document.createElement('button');
        row.dataset.kernel = kernel;
        row.classList.toggle('picked', kernel === picked);
        button.type = 'button';
        button.textContent = page.names[kernel];
        button.addEventListener('click', () => pick(kernel));
        [button, one.of_roof, one.share === undefined ? '' : form(one.share, '.4g') + '%'].forEach((content, column) => {
          const td = document.createElement('td');
          if (column) { td.className = column === 2 ? 'number time' : 'number'; }
          td.append(content);
          row.append(td);
        });
        return row;
      }));
      const all = kernels.length + (kernels.length === 1 ? ' kernel' : ' kernels');
      byId('count').textContent = (order.length === kernels.length ? all : order.length + ' of ' + all) +
        (order.length > LISTED ? '; the first ' + LISTED + ' are listed' : '');
    }
    document.querySelectorAll('#kernels th button').forEach((button) => {
      button.addEventListener('click', () => {
        const key = button.dataset.sort;
        sort = { key, down: sort.key === key ? !sort.down : key !== 'name' };
        document.querySelectorAll('#kernels th').forEach((head) => {
          const own = head.firstElementChild.dataset.sort === key;
          head.setAttribute('aria-sort', own ? (sort.down ? 'descending' : 'ascending') : 'none');
        });
        list();
      });
    });

    /* ---- exports, made on click ---- */
    function current() { /* the drawing as it is seen, in the light colors, with the title */
      const spec = specification(layout), now = domains(), title = 34;
      spec.width = view.width();
      spec.height = view.height();
      spec.padding = Object.assign({}, spec.padding, { top: spec.padding.top + title });
      spec.title = { text: document.title, anchor: 'start', fontSize: 15, offset: 10, limit: view.width() };
      const values = { xdom: now.x, ydom: now.y, xticks: ticks(...now.x), yticks: ticks(...now.y) };
      spec.signals.forEach((signal) => { if (values[signal.name]) { signal.value = values[signal.name]; } });
      const data = rows();
      spec.data.forEach((one) => { one.values = data[one.name]; });
      return spec;
    }
    const url = (text, type) => URL.createObjectURL(new Blob([text], { type }));
    const escaped = (text) => text.replace(/</g, '\\u003c');
    function live(spec) {
      const run = 'vegaEmbed("#vis",' + escaped(JSON.stringify(spec)) + ',{renderer:"svg"})';
      const engine = byId('roofline-engine').textContent.replace(/<\/script/gi, '<\\/script');
      return '<!doctype html><meta charset="utf-8"><title>roofline</title><div id="vis"></div><script>' + engine + '</' + 'script><script>' + run + '</' + 'script>';
    }
    function link(id, make) {
      const anchor = byId(id);
      anchor.addEventListener('click', (event) => {
        if (anchor.dataset.made === 'now') { delete anchor.dataset.made; return; }
        event.preventDefault();
        Promise.resolve(make()).then((address) => {
          anchor.href = address;
          anchor.dataset.made = 'now';
          anchor.click();
        });
      });
    }
    const silent = () => embed(document.createElement('div'), current()).then((made) => made.view);
    const titled = (svg) => svg.replace(/(<path aria-label="([^"]*)"[^>]*)\/>/g, '$1><title>$2</title></path>');
    link('figure-svg', () => silent().then((made) => made.toSVG()).then((svg) => url(titled(svg), 'image/svg+xml')));
    link('figure-png', () => silent().then((made) => made.toImageURL('png', 2)));
    link('vega-lite-json', () => url(JSON.stringify(lite, null, 1), 'application/json'));
    link('vega-json', () => url(JSON.stringify(current(), null, 1), 'application/json'));
    link('vega-lite-live', () => url(live(lite), 'text/html'));
    link('vega-live', () => url(live(current()), 'text/html'));
    link('save', () => {
      const copy = document.documentElement.cloneNode(true), now = domains();
      copy.querySelector('#roofline-state').textContent = escaped(JSON.stringify({ notes: state.notes, view: isWhole() ? null : now }));
      ['#drawing', '#kernels-body'].forEach((name) => copy.querySelector(name).replaceChildren());
      copy.querySelectorAll('#filters select').forEach((select) => { select.querySelectorAll('option:not([value=""])').forEach((one) => one.remove()); });
      copy.querySelector('#row-content').className = 'empty';
      copy.querySelector('#row-content').textContent = 'Nothing is picked. Click a point, or a name in the list.';
      copy.querySelector('#drawing').removeAttribute('data-tool');
      copy.querySelector('#tip').hidden = true;
      copy.querySelectorAll('#tools button[data-tool]').forEach((button) => button.setAttribute('aria-pressed', 'false'));
      delete copy.dataset.ready;
      return url('<!doctype html>' + copy.outerHTML, 'text/html');
    });

    build().then(() => {
      if (state.view) { setDomain(state.view.x, state.view.y); }
      list();
      document.documentElement.dataset.ready = '1';
    });
  }
  document.addEventListener('DOMContentLoaded', start);
})();
