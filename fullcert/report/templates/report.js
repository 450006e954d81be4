"use strict";
// The page without this script has everything but the table of samples. Text only ever enters it as text.
(() => {
  const PAGE = 25;
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const count = (amount) => amount.toLocaleString("en");
  const written = (value) => (value === null || value === undefined ? "–" : String(value).replaceAll("-", "−"));

  function element(name, text, kind) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function drawing(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  // --- charts: the values under the pointer, or chosen with the arrow keys ---

  function readable(figure) {
    const rows = all("tr[data-x]", figure).map((row) => ({
      x: Number(row.dataset.x),
      y: row.dataset.y.split(" ").map(Number),
      cells: all("td", row).map((cell) => cell.textContent),
    }));
    if (!rows.length) return;
    const names = all("th", figure).map((cell) => cell.textContent);
    const words = ({ cells }) => {
      const values = cells.slice(1).map((cell, index) => cell && `${names[index + 1]} ${cell}`).filter(Boolean);
      return `${names[0]} ${cells[0]}: ${values.join(", ")}`;
    };
    const picture = find("svg.chart", figure);
    const pointer = picture.appendChild(drawing("g", {}));
    const cursor = find(".plot", figure).appendChild(element("div", undefined, "cursor"));
    for (const [key, value] of Object.entries({
      role: "slider", tabindex: "0", "aria-label": `Values of the figure: ${find("figcaption b", figure).textContent}`,
      "aria-valuemin": "0", "aria-valuemax": String(rows.length - 1), "aria-orientation": "horizontal",
    })) cursor.setAttribute(key, value);
    let shown = rows.length - 1;

    function mark(visible) {
      const { x, y } = rows[shown];
      pointer.replaceChildren();
      if (!visible) return;
      pointer.append(drawing("path", { class: "hair", d: `M${x} ${picture.dataset.top}V${picture.dataset.bottom}` }));
      for (const cy of y) pointer.append(drawing("circle", { class: "at", cx: x, cy, r: 5.5 }));
    }
    function show(index, visible) {
      shown = Math.min(Math.max(index, 0), rows.length - 1);
      cursor.setAttribute("aria-valuenow", String(shown));
      const told = words(rows[shown]).replaceAll(" %", "\u00a0%"); // no line ends before a %
      cursor.setAttribute("aria-valuetext", told);
      find(".reading", figure).textContent = told;
      mark(visible);
    }
    function point(event) {
      const frame = picture.getBoundingClientRect();
      const x = ((event.clientX - frame.left) / frame.width) * picture.viewBox.baseVal.width;
      let nearest = 0;
      rows.forEach((row, index) => { if (Math.abs(row.x - x) < Math.abs(rows[nearest].x - x)) nearest = index; });
      show(nearest, true);
    }
    cursor.addEventListener("pointermove", point);
    cursor.addEventListener("pointerdown", point);
    cursor.addEventListener("pointerleave", () => { if (document.activeElement !== cursor) show(rows.length - 1, false); });
    cursor.addEventListener("focus", () => show(shown, true));
    cursor.addEventListener("blur", () => show(rows.length - 1, false));
    cursor.addEventListener("keydown", (event) => {
      const many = Math.max(1, Math.round(rows.length / 10));
      const goals = {
        ArrowLeft: shown - 1, ArrowDown: shown - 1, ArrowRight: shown + 1, ArrowUp: shown + 1,
        PageDown: shown - many, PageUp: shown + many, Home: 0, End: rows.length - 1,
      };
      if (!(event.key in goals)) return;
      event.preventDefault();
      show(goals[event.key], true);
    });
    show(shown, false);
  }

  // --- the plane: a slider over the test radius ---

  function slide() {
    const slider = find("#radius");
    if (!slider) return;
    const layers = all(".radius:not(.names)", find("#plane"));
    const names = all(".radius.names", find("#plane"));
    slider.addEventListener("input", () => {
      const chosen = Number(slider.value);
      for (const list of [layers, names]) list.forEach((layer, index) => layer.classList.toggle("shown", index === chosen));
      const { words, epsilon } = layers[chosen].dataset;
      slider.setAttribute("aria-valuetext", epsilon);
      find("#plane").setAttribute("aria-label", words);
      find("#radius-words").textContent = words;
    });
    slider.value = slider.defaultValue; // browsers remember where a slider was; the picture begins where the page says
  }

  // --- the table of samples ---

  const data = JSON.parse(find("#data").textContent);
  const regression = data.task === "regression";
  const samples = data.row.map((_, index) => index);
  const named = (column) => (index) => (data[column][index] === null ? null : data.names[data[column][index]]);
  const right = (index) => (data.true[index] === null ? null : data.true[index] === data.label[index] ? "right" : "wrong");

  // what a column sorts by
  const keys = {
    row: (index) => data.row[index],
    line: (index) => data.line[index],
    id: (index) => data.id[index],
    true: (index) => data.true[index],
    label: (index) => data.label[index],
    status: (index) => data.certified[index],
    rightness: right,
    margin: (index) => data.margin[index],
    votes: (index) => data.votes[index],
    withstands: (index) => data.withstands[index],
    lower: (index) => data.lower[index][0] ?? null,
    upper: (index) => data.upper[index][0] ?? null,
    width: (index) => data.width[index],
  };

  const state = { key: "row", direction: 1, page: 0, found: samples, opened: new Set() };

  function ordered(chosen) {
    const key = keys[state.key];
    return chosen.map((index) => [key(index), index]).sort(([a, i], [b, j]) => {
      if (a === null || b === null) return (a === null) - (b === null) || i - j; // what is not known comes last
      return (a < b ? -1 : a > b ? 1 : 0) * state.direction || i - j;
    }).map(([, index]) => index);
  }

  function matching() {
    const chosen = (name) => find(`#${name}`)?.value ?? "";
    const [status, rightness, label, text] = [chosen("status"), chosen("rightness"), chosen("class"), chosen("text").trim().toLowerCase()];
    const holds = (index) => {
      const places = [data.row, data.line, data.id].filter(Boolean).map((column) => String(column[index] ?? "").toLowerCase());
      if (places.some((place) => place.startsWith(text))) return true;
      if (/^\d+$/.test(text)) return false;
      return !regression && [named("true"), named("label")].some((name) => (name(index) ?? "").toLowerCase().includes(text));
    };
    return samples.filter((index) =>
      (!status || String(data.certified[index]) === status) && (!rightness || right(index) === rightness)
      && (!label || String(data.label[index]) === label) && (!text || holds(index)));
  }

  // one axis for all intervals, with zero in it; the few that reach furthest are cut off at its ends
  const [lowest, highest] = [data.lower, data.upper].map((columns, high) => {
    const ends = [...columns.flat(), ...(regression ? data.true : [])].filter((value) => value !== null).sort((a, b) => a - b);
    const last = ends.length - 1;
    const end = ends.length ? ends[high ? Math.ceil(last * 0.98) : Math.floor(last * 0.02)] : 0;
    return high ? Math.max(end, 0) : Math.min(end, 0);
  });
  const short = (value) => written(Number(value.toPrecision(2)));
  const place = (value) => 2 + 116 * Math.min(Math.max((value / 2 - lowest / 2) / (highest / 2 - lowest / 2 || 1), 0), 1); // halves do not overflow

  function axis() {
    const cell = element("span", undefined, "axis-ends");
    const zero = element("span", "0");
    zero.style.left = `${(place(0) / 120) * 100}%`;
    const near = (place(0) < 26 || place(0) > 94);
    if (lowest < 0) cell.append(element("span", short(lowest), "low"));
    if (!near || lowest === 0 || highest === 0) cell.append(zero);
    if (highest > 0) cell.append(element("span", short(highest), "high"));
    return cell;
  }

  function spanned(index) {
    const cell = element("td", undefined, "drawn");
    const [low, high, value] = [data.lower[index][0] ?? null, data.upper[index][0] ?? null, data.true[index]];
    const picture = drawing("svg", { viewBox: "0 0 120 14", "aria-hidden": "true" });
    picture.append(drawing("path", { class: "zero", d: `M${place(0)} 0V14` }));
    if (low !== null && high !== null) picture.append(drawing("path", { class: "bound", d: `M${place(low)} 7H${Math.max(place(high), place(low) + 1.5)}` }));
    if (value !== null) picture.append(drawing("path", { class: "truth", d: `M${place(value)} 2V12` }));
    cell.append(picture);
    return cell;
  }

  // what an output speaks for: a class, or the second of two
  function outputOf(output, outputs) {
    if (outputs === data.classes.length) return data.classes[output];
    return outputs === 1 && data.classes.length === 2 ? `towards ${data.classes[1]}` : `output ${output + 1}`;
  }

  // the bounds of every output in a row of their own, below that of the sample
  function detail(index) {
    const [lower, upper] = [data.lower[index], data.upper[index]];
    const list = element("div", undefined, "outputs");
    list.append(element("span", "Output"), axis(), element("span", "Bounds"));
    lower.forEach((low, output) => {
      const [high, picture] = [upper[output], drawing("svg", { viewBox: "0 0 120 8", "aria-hidden": "true" })];
      picture.append(drawing("path", { class: "zero", d: `M${place(0)} 0V8` }));
      if (low !== null && high !== null) picture.append(drawing("path", { class: "bound", d: `M${place(low)} 4H${Math.max(place(high), place(low) + 1.5)}` }));
      list.append(element("span", outputOf(output, lower.length), "output"), picture, element("span", `${written(low)} … ${written(high)}`));
    });
    const [row, cell] = [element("tr", undefined, "detail"), element("td")];
    cell.colSpan = columns.length;
    cell.append(list);
    row.append(cell);
    return row;
  }

  function disclosed(index) {
    const cell = element("td");
    if (!data.lower[index].length) return element("td", "–");
    const button = element("button", "", "disclose");
    button.type = "button";
    const tell = () => {
      button.setAttribute("aria-expanded", String(state.opened.has(index)));
      button.textContent = state.opened.has(index) ? "hide" : "show";
    };
    button.setAttribute("aria-label", `Bounds of row ${data.row[index]}`);
    button.addEventListener("click", () => {
      const row = button.closest("tr");
      if (state.opened.delete(index)) row.nextElementSibling.remove();
      else { state.opened.add(index); row.after(detail(index)); }
      tell();
    });
    tell();
    cell.append(button);
    return cell;
  }

  const cells = {
    row: (index) => element("td", written(data.row[index]), "numeric"),
    line: (index) => element("td", written(data.line[index]), "numeric"),
    id: (index) => element("td", data.id[index] ?? "–", "wide name"),
    drawn: spanned,
    true: (index) => element("td", regression ? written(data.true[index]) : named("true")(index) ?? "–", regression ? "numeric" : "wide"),
    label: (index) => element("td", regression ? written(data.label[index]) : named("label")(index) ?? "–", regression ? "numeric" : "wide"),
    status: (index) => {
      const cell = element("td");
      cell.append(data.certified[index] ? element("span", "certified", "state yes") : element("span", "abstained", "state"));
      return cell;
    },
    rightness: (index) => element("td", right(index) ?? "–", right(index) === "wrong" ? "wrong-word" : ""),
    margin: (index) => element("td", written(data.margin[index]), "numeric"),
    votes: (index) => element("td", written(data.votes[index]), "numeric"),
    withstands: (index) => element("td", written(data.withstands[index]), "numeric"),
    lower: (index) => element("td", written(keys.lower(index)), "numeric"),
    upper: (index) => element("td", written(keys.upper(index)), "numeric"),
    width: (index) => element("td", written(data.width[index]), "numeric"),
    bounds: disclosed,
  };

  const headings = all("#table th");
  const columns = headings.map((heading) => heading.dataset.key);
  const names = headings.map((heading) => heading.textContent.trim()); // what a cell is called where it stands alone

  function draw() {
    const pages = Math.max(1, Math.ceil(state.found.length / PAGE));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const shown = state.found.slice(state.page * PAGE, (state.page + 1) * PAGE);
    find("#table tbody").replaceChildren(...shown.flatMap((index) => {
      const row = element("tr");
      row.append(...columns.map((column, place) => {
        const cell = cells[column](index);
        cell.dataset.label = names[place];
        return cell;
      }));
      return state.opened.has(index) ? [row, detail(index)] : [row];
    }));
    for (const heading of headings) {
      if (heading.dataset.key === state.key) heading.setAttribute("aria-sort", state.direction > 0 ? "ascending" : "descending");
      else heading.removeAttribute("aria-sort");
    }
    find("#page").textContent = `page ${count(state.page + 1)} of ${count(pages)}`;
    find("#first").disabled = find("#previous").disabled = state.page === 0;
    find("#last").disabled = find("#next").disabled = state.page === pages - 1;
    const printed = `${count(shown.length)} of ${count(samples.length)} samples are printed: those that were shown on the screen.`;
    find("#printed").textContent = shown.length < samples.length ? `${printed} The file holds all of them.` : "";
  }

  function update() {
    const chosen = matching();
    state.found = ordered(chosen);
    state.page = 0;
    find("#counted").textContent = `${count(chosen.length)} of ${count(samples.length)} samples`;
    draw();
  }

  function prepare() {
    const counted = new Set(data.label);
    (data.names ?? []).forEach((name, index) => {
      if (!counted.has(index)) return;
      const option = element("option", name);
      option.value = String(index);
      find("#class").append(option);
    });
    for (const heading of headings) {
      const { key } = heading.dataset;
      if (["row", "line", "margin", "votes", "withstands", "lower", "upper", "width"].includes(key) || (regression && !["status", "id", "drawn"].includes(key))) heading.classList.add("numeric");
      if (key === "drawn") heading.append(axis());
      find("button", heading)?.addEventListener("click", () => {
        const again = state.key === heading.dataset.key;
        [state.key, state.direction] = [heading.dataset.key, again ? -state.direction : 1];
        update();
      });
    }
    const controls = all(".filters select, .filters input");
    for (const control of controls) control.addEventListener("input", update);
    find("#reset").addEventListener("click", () => { for (const control of controls) control.value = ""; update(); });
    find("#all-abstained")?.addEventListener("click", () => { find("#status").value = "0"; update(); });
    const turn = (name, page) => find(name).addEventListener("click", () => { state.page = page(); draw(); });
    turn("#first", () => 0);
    turn("#previous", () => state.page - 1);
    turn("#next", () => state.page + 1);
    turn("#last", () => Infinity);
    for (const control of controls) control.value = "";
    update();
  }

  document.documentElement.classList.add("scripted");
  all("figure.plotted").forEach(readable);
  slide();
  prepare();
})();
