// Tables that are sorted by the column whose heading is clicked; a second click turns the order round.

import { h } from "./dom.js";

export class Sorting {
  // `values`: for each column what returns a row's value there, or null for a column that does not sort. `column` and `down` (the
  // largest first) say how the rows are sorted before the first click. `changed` is called after each.
  constructor(headings, values, column, down, changed) {
    this.headings = [...headings];
    this.values = values;
    this.column = column;
    this.down = down;
    this.headings.forEach((heading, at) => {
      if (!values[at]) return;
      const button = h("button", { type: "button", class: "sort", onclick: () => this.click(at, changed) });
      button.append(...heading.childNodes);
      heading.append(button);
    });
    this.mark();
  }

  click(column, changed) {
    const number = this.headings[column].classList.contains("number");
    this.down = column === this.column ? !this.down : number; // of numbers the large ones matter
    this.column = column;
    this.mark();
    changed();
  }

  mark() {
    this.headings.forEach((heading, at) => {
      if (at === this.column) heading.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    });
  }

  // Returns the rows in their order. Rows without a value come last, and equal ones stay as they are.
  sorted(rows) {
    const value = this.values[this.column];
    if (!value) return [...rows];
    const valued = rows.map((row) => [value(row) ?? "", row]);
    const direction = this.down ? -1 : 1;
    valued.sort(([a], [b]) => (a === "" || b === "" ? (a === "") - (b === "") : direction * compared(a, b)));
    return valued.map(([, row]) => row);
  }
}

function compared(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
