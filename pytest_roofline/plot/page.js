/* Adds to plotpress' tools: the row of a picked kernel, filters, keys and exports. It sends no request. */
(function () {
  'use strict';
  var byId = function (id) { return document.getElementById(id); };
  var read = function (id) { return JSON.parse(byId(id).textContent); };

  function start() {
    var page = read('roofline-page');
    var lite = read('roofline-vega-lite');
    var points = lite.datasets.kernels; /* one per kernel and memory level, in the order of the drawing's kernels */
    var svg = byId('plotpress-svg');
    var drawing = page.drawings[byId('figure').dataset.drawing];
    var kernels = [];
    page.kernel_of_point.forEach(function (kernel, at) { (kernels[kernel] = kernels[kernel] || []).push(at); });
    var first = function (kernel) { return points[kernels[kernel][0]]; };
    var shown = kernels.map(function () { return true; });
    var level = '';

    /* ---- the row of one kernel ---- */
    function reached(point) { return point.of_roof + (/%$/.test(point.of_roof) ? ' of roof' : point.of_roof === 'unknown' ? ' roof' : ''); }
    function form(value, spec) {
      if (Array.isArray(value)) { return value.map(function (one) { return form(one, spec); }).join(' to '); }
      if (typeof value === 'boolean') { return value ? 'yes' : 'no'; }
      if (typeof value !== 'number') { return String(value); }
      var found = /^\.(\d+)([fg])$/.exec(spec || '.6g');
      if (found && found[2] === 'f') { return value.toFixed(+found[1]); }
      return String(+value.toPrecision(found ? +found[1] : 6));
    }
    function quantity(value, unit) {
      if (unit === 'FLOP/B') { return form(value, '.4g') + ' ' + unit; }
      var step = value ? Math.max(0, Math.min(6, Math.floor(Math.log10(Math.abs(value) * 1.00005) / 3))) : 0;
      return form(value / Math.pow(1000, step), '.4g') + ' ' + ['', 'k', 'M', 'G', 'T', 'P', 'E'][step] + unit;
    }
    function cell(column, kernel) {
      var values = page.columns[column];
      if (!values.at) { return Array.isArray(values.all) && typeof values.all[0] === 'string' ? values.all.join('; ') : values.all; }
      var value = values.at[kernel];
      return values.words && value !== null ? value.map(function (at) { return values.words[at]; }).join('; ') : value;
    }
    function details(kernel) {
      var point = first(kernel);
      var lines = [['kernel', point.name], ['percent of roof', point.of_roof]];
      [['interval', 'range'], ['bound', 'limiter'], ['below', 'what that means'], ['verdict', 'verdict'], ['reason', 'reason'],
        ['basis', 'basis'], ['dtype', 'dtype']].forEach(function (pair) {
        if (point[pair[0]] !== undefined && point[pair[0]] !== 'kernel') { lines.push([pair[1], point[pair[0]]]); }
      });
      if (point.share !== undefined) { lines.push(['share of time', form(point.share, '.4g') + '%']); }
      kernels[kernel].forEach(function (at) {
        var one = points[at];
        lines.push(['intensity' + (one.level ? ' at ' + one.level : ''), form(one.intensity, '.4g') + ' FLOP/B']);
      });
      lines.push(['attained', form(point.rate, '.4g') + ' ' + page.unit]);
      Object.keys(page.columns).forEach(function (key) {
        var value = cell(key, kernel);
        if (value === null || value === undefined || value === '' || (Array.isArray(value) && !value.length)) { return; }
        var field = page.fields[key] || ['', '', ''];
        var unit = field[1];
        if (typeof value === 'number' && /^(B|FLOP)/.test(unit)) {
          lines.push([key.replace(/_/g, ' '), quantity(value, unit), field[0]]);
          return;
        }
        var gap = unit && unit !== '%' && unit !== 'x' ? ' ' : '';
        lines.push([key.replace(/_/g, ' '), form(value, field[2]) + gap + unit, field[0]]);
      });
      return lines;
    }
    function show(kernel) {
      var list = document.createElement('dl');
      details(kernel).forEach(function (line) {
        var term = document.createElement('dt'), definition = document.createElement('dd');
        term.textContent = line[0];
        definition.textContent = line[1];
        if (line[2]) { term.title = line[2]; }
        list.append(term, definition);
      });
      byId('row-content').replaceChildren(list);
      byId('row-content').className = '';
      byId('row').dataset.kernel = kernel;
    }

    /* ---- picking: which kernel a plotpress pin belongs to ---- */
    function picked(pin) {
      if (!pin || pin.classList.contains('plotpress-note') || pin.dataset.kind !== 'points') { return; }
      var kernel = page.kernel_of_point[+pin.dataset.index];
      if (kernel === undefined) { return; }
      var text = pin.querySelector('text'), label = first(kernel).name;
      label = (label.length > 44 ? label.slice(0, 43) + '…' : label) + ': ' + reached(first(kernel));
      if (text && text.textContent !== label && !pin.dataset.customLabel) {
        text.textContent = label;
        var box = pin.querySelector('rect');
        box.setAttribute('width', label.length * 6.05 + 10);
      }
      if (pin.classList.contains('selected')) { show(kernel); }
    }
    new MutationObserver(function (changes) {
      changes.forEach(function (change) {
        if (change.type === 'childList') {
          change.addedNodes.forEach(function (node) {
            if (node.classList && node.classList.contains('plotpress-pin')) { setTimeout(picked, 0, node); }
          });
        } else if (change.target.classList.contains('plotpress-pin')) { picked(change.target); }
      });
    }).observe(svg, { childList: true, subtree: true, attributes: true, attributeFilter: ['class', 'data-index', 'transform'] });

    /* ---- filters ---- */
    function pieces(path) {
      if (!path.rooflinePieces) { path.rooflinePieces = path.getAttribute('d').match(/M[^M]*/g) || []; }
      return path.rooflinePieces;
    }
    function hide(node, hidden) { node.classList.toggle('roofline-hidden', hidden); }
    function apply() {
      var visible = function (kernel) { return shown[kernel]; };
      var binding = function (kernel) { return !level || first(kernel).level === level; };
      Object.keys(drawing.series).forEach(function (number) {
        var owners = drawing.series[number], node = byId('s0_' + number);
        if (!node) { return; }
        if (node.tagName.toLowerCase() === 'path') {
          hide(node, !visible(owners[0]) || !binding(owners[0]) || (level && drawing.links.indexOf(+number) >= 0));
          return;
        }
        var spots = drawing.spots[number];
        node.querySelectorAll('path').forEach(function (path) {
          path.setAttribute('d', pieces(path).filter(function (_, at) {
            return visible(owners[at]) && (spots ? !level || points[spots[at]].level === level : binding(owners[at]));
          }).join(''));
        });
      });
      svg.querySelectorAll('.plotpress-cscale').forEach(function (node, at) {
        var owner = drawing.labels[at];
        if (owner === null || owner === undefined) { return; }
        var of = drawing.levels[at]; /* the memory level of a tag; a label belongs to the level of its percent */
        hide(node, !visible(owner) || (of && level ? of !== level : !of && !binding(owner)));
      });
      if (window.plotpressUpdatePick) {
        var keep = points.map(function (one, at) {
          return visible(page.kernel_of_point[at]) && (!level || one.level === level);
        });
        var series = JSON.parse(byId('plotpress-pick').textContent)[0].series[0];
        ['x', 'y'].forEach(function (axis) {
          series[axis] = series[axis].map(function (value, at) { return keep[at] ? value : null; });
        });
        window.plotpressUpdatePick('0', JSON.stringify({ series: keep.some(Boolean) ? [series] : [], meshes: [], pies: [] }));
      }
      list();
    }
    function filter() {
      var dtype = byId('dtype').value, share = parseFloat(byId('share').value) || 0;
      var words = byId('search').value.trim().toLowerCase();
      level = byId('level').value;
      shown = kernels.map(function (_, kernel) {
        var one = first(kernel);
        return (!dtype || (one.dtype || 'unknown') === dtype) && (share <= 0 || (one.share || 0) >= share) &&
          (!level || kernels[kernel].some(function (at) { return points[at].level === level; })) &&
          (!words || one.name.toLowerCase().indexOf(words) >= 0);
      });
      apply();
    }
    function options(id, values) {
      var select = byId(id);
      values.forEach(function (value) {
        var option = document.createElement('option');
        option.value = option.textContent = value;
        select.append(option);
      });
      select.parentElement.hidden = values.length < 2;
    }
    var distinct = function (values) { return Array.from(new Set(values)); };
    options('dtype', distinct(points.map(function (one) { return one.dtype || 'unknown'; })));
    options('level', distinct(points.map(function (one) { return one.level || ''; })).filter(Boolean));
    byId('share').parentElement.hidden = !points.some(function (one) { return one.share !== undefined; });
    byId('kernels').querySelector('table').classList.toggle('timeless', byId('share').parentElement.hidden);
    byId('search').parentElement.hidden = kernels.length < 2;
    ['dtype', 'level', 'share', 'search'].forEach(function (id) { byId(id).addEventListener('input', filter); });

    /* ---- the table: reaches every kernel by keyboard ---- */
    var LISTED = 100;
    function list() {
      var body = byId('kernels-body'), rows = [], count = 0;
      page.order.forEach(function (kernel) {
        if (!shown[kernel]) { return; }
        count += 1;
        if (rows.length >= LISTED) { return; }
        var one = first(kernel), row = document.createElement('tr');
        var button = document.createElement('button');
        button.type = 'button';
        button.textContent = one.name;
        button.addEventListener('click', function () { show(kernel); ring(kernel); });
        [button, one.of_roof, one.share === undefined ? '' : form(one.share, '.4g') + '%'].forEach(function (content, at) {
          var td = document.createElement('td');
          if (at) { td.className = at === 2 ? 'number time' : 'number'; }
          td.append(content);
          row.append(td);
        });
        rows.push(row);
      });
      body.replaceChildren.apply(body, rows);
      var more = count > rows.length ? '; the first ' + rows.length + ' are listed' : '';
      var all = kernels.length + (kernels.length === 1 ? ' kernel' : ' kernels');
      byId('count').textContent = (count === kernels.length ? all : count + ' of ' + all) + more;
    }
    function spot(kernel) { /* the position of a kernel on the screen */
      var found = null;
      Object.keys(drawing.spots).forEach(function (number) {
        var at = drawing.series[number].indexOf(kernel);
        if (at < 0 || found) { return; }
        var paths = byId('s0_' + number).querySelectorAll('path');
        var path = paths[paths.length - 1];
        var numbers = pieces(path)[at].match(/-?[\d.]+/g).map(Number), xs = 0, ys = 0;
        for (var i = 0; i + 1 < numbers.length; i += 2) { xs += numbers[i]; ys += numbers[i + 1]; }
        var place = svg.createSVGPoint();
        place.x = xs / (numbers.length / 2); place.y = ys / (numbers.length / 2);
        found = place.matrixTransform(path.getScreenCTM());
      });
      return found;
    }
    function ring(kernel) {
      var old = byId('ring');
      if (old) { old.remove(); }
      var place = spot(kernel);
      if (!place) { return; }
      var here = place.matrixTransform(svg.getScreenCTM().inverse()), clip = svg.querySelector('clipPath rect').getBBox();
      if (here.x < clip.x || here.x > clip.x + clip.width || here.y < clip.y || here.y > clip.y + clip.height) { return; }
      var circle = document.createElementNS('http://www.w3.org/2000/svg', 'circle');
      [['id', 'ring'], ['cx', here.x], ['cy', here.y], ['r', 13], ['fill', 'none'], ['stroke', '#D55E00'], ['stroke-width', 2]]
        .forEach(function (pair) { circle.setAttribute(pair[0], pair[1]); });
      svg.append(circle);
      setTimeout(function () { circle.remove(); }, 4000);
    }

    /* ---- keys on the figure, when a tool is active ---- */
    svg.setAttribute('tabindex', '0');
    function mode() {
      var active = document.querySelector('.plotpress-toolbar button.active');
      return active ? active.dataset.mode : null;
    }
    function mouse(kind, x, y) {
      var target = kind === 'mousedown' || kind === 'click' ? svg : window;
      target.dispatchEvent(new MouseEvent(kind, { bubbles: true, cancelable: true, button: 0, buttons: 1, clientX: x, clientY: y }));
    }
    function drag(ax, ay, bx, by) { mouse('mousedown', ax, ay); mouse('mousemove', bx, by); mouse('mouseup', bx, by); }
    svg.addEventListener('keydown', function (event) {
      var tool = mode();
      if (!tool || event.ctrlKey || event.metaKey || event.altKey) { return; }
      var clip = svg.querySelector('clipPath rect').getBBox(), matrix = svg.getScreenCTM();
      var x = matrix.e + matrix.a * (clip.x + clip.width / 2), y = matrix.f + matrix.d * (clip.y + clip.height / 2);
      var w = matrix.a * clip.width, h = matrix.d * clip.height;
      var step = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (tool === 'span' && step) {
        drag(x, y, x + step[0] * w / 8, y + step[1] * h / 8);
      } else if ((tool === 'zoom' || tool === 'span') && (event.key === '+' || event.key === '=')) {
        if (tool !== 'zoom') { return; }
        drag(x - w / 3, y - h / 3, x + w / 3, y + h / 3);
      } else if ((tool === 'zoom' || tool === 'span') && (event.key === '-' || event.key === '0')) {
        svg.dispatchEvent(new MouseEvent('dblclick', { bubbles: true, clientX: x, clientY: y }));
      } else if (tool === 'pick' && event.key === 'Enter') {
        var next = page.order.find(function (kernel) { return shown[kernel]; });
        var at = next === undefined ? null : spot(next);
        if (at) { mouse('mousedown', at.x, at.y); mouse('mouseup', at.x, at.y); mouse('click', at.x, at.y); }
      } else { return; }
      event.preventDefault();
      event.stopPropagation();
    });

    /* ---- exports ---- */
    function vega() {
      var spec = read('roofline-vega');
      spec.data.forEach(function (one) { if (lite.datasets[one.name]) { one.values = lite.datasets[one.name]; } });
      return spec;
    }
    function url(text, type) { return URL.createObjectURL(new Blob([text], { type: type })); }
    function live(spec) {
      var engine = byId('roofline-engine').textContent.replace(/<\\\/script/g, '</scr' + 'ipt');
      var json = JSON.stringify(spec).replace(/</g, '\\u003c');
      return engine.split(page.marker).join(json);
    }
    function link(id, make) { /* created on click */
      var anchor = byId(id);
      if (!anchor) { return; }
      var prepare = function () { if (!anchor.dataset.made) { anchor.href = make(); anchor.dataset.made = '1'; } };
      ['pointerdown', 'focus', 'click'].forEach(function (kind) { anchor.addEventListener(kind, prepare, true); });
    }
    function snapshot() { /* the current view as a standalone SVG, with notes and without filtered kernels */
      var copy = svg.cloneNode(true), style = document.createElementNS('http://www.w3.org/2000/svg', 'style');
      copy.querySelectorAll('.roofline-hidden, #ring').forEach(function (node) { node.remove(); });
      copy.querySelectorAll('.plotpress-pin.selected').forEach(function (node) { node.classList.remove('selected'); });
      ['tabindex', 'style', 'class'].forEach(function (name) { copy.removeAttribute(name); });
      style.textContent = '.plotpress-note rect{fill:#b45309}';
      copy.prepend(style);
      return new XMLSerializer().serializeToString(copy);
    }
    function save(id, make) { /* created on each click, since the view changes */
      byId(id).addEventListener('click', function (event) {
        event.preventDefault();
        make(function (address) {
          var anchor = document.createElement('a');
          anchor.href = address;
          anchor.download = byId(id).getAttribute('download');
          anchor.click();
        });
      });
    }
    save('figure-svg', function (done) { done(url(snapshot(), 'image/svg+xml')); });
    save('figure-png', function (done) {
      var image = new Image(), box = svg.viewBox.baseVal, canvas = document.createElement('canvas');
      image.onload = function () {
        canvas.width = 2 * box.width;
        canvas.height = 2 * box.height;
        canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
        done(canvas.toDataURL('image/png'));
      };
      image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(snapshot());
    });
    link('vega-lite-json', function () { return url(JSON.stringify(lite, null, 1), 'application/json'); });
    link('vega-json', function () { return url(JSON.stringify(vega(), null, 1), 'application/json'); });
    link('vega-lite-live', function () { return url(live(lite), 'text/html'); });
    link('vega-live', function () { return url(live(vega()), 'text/html'); });

    var bar = document.querySelector('.plotpress-menubar');
    if (bar) {
      new ResizeObserver(function () { document.documentElement.style.setProperty('--bar', bar.offsetHeight + 'px'); }).observe(bar);
    }
    list();
    document.documentElement.dataset.ready = '1';
  }
  document.addEventListener('DOMContentLoaded', start);
})();
