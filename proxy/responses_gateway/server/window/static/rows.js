// Rows of a table that stay the same elements, with their focus, while what they show changes.

// Shows values as rows, in their order. `rows`: id -> its element `row`, and the `value` that it shows. `add` makes one of them for a
// value, which `update` then shows in it.
export function showRows(body, rows, values, add, update) {
  const ids = new Set(values.map((value) => value.id));
  for (const [id, { row }] of rows) {
    if (ids.has(id)) continue;
    row.remove();
    rows.delete(id);
  }
  let next = body.firstChild;
  for (const value of values) {
    if (!rows.has(value.id)) rows.set(value.id, add(value));
    const shown = rows.get(value.id);
    if (shown.value !== value) update(shown, value);
    if (shown.row === next) next = next.nextSibling;
    else body.insertBefore(shown.row, next);
  }
}

// Returns the id of the row that is `by` rows below the one with this id, or of the first if there is none.
export function idBelow(body, id, by) {
  const ids = [...body.children].map((row) => row.dataset.id);
  const at = ids.indexOf(id);
  return ids[at < 0 ? 0 : Math.max(0, Math.min(ids.length - 1, at + by))];
}
