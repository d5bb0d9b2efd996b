// Sorts the rows of a table by the column whose head is clicked.
const tables = document.querySelectorAll("table");
tables.forEach(table => table.querySelectorAll("th[data-sort]").forEach((head, i) =>
  head.addEventListener("click", () => {
    const down = head.dataset.sort !== "down";
    table.querySelectorAll("th[data-sort]").forEach(each => each.dataset.sort = "");
    head.dataset.sort = down ? "down" : "up";
    const key = row => row.children[i].dataset.value;
    const order = (a, b) => isNaN(key(a)) || isNaN(key(b)) ? key(b).localeCompare(key(a)) : key(b) - key(a);
    const rows = [...table.tBodies[0].rows].sort((a, b) => down ? order(a, b) : order(b, a));
    table.tBodies[0].append(...rows);
  })));
