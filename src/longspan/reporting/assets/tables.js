// Tables wider than the page use its margins, and those that still do not fit say that they scroll.

function fitTables() {
  for (const table of document.querySelectorAll(".table")) {
    const box = table.querySelector(".scroll"), beyond = () => box.scrollWidth > box.clientWidth + 1;
    table.classList.remove("wide", "scrolls");
    if (beyond()) table.classList.add("wide");
    if (beyond()) table.classList.add("scrolls");
  }
}

addEventListener("resize", fitTables);
addEventListener("toggle", fitTables, true);
fitTables();
