// Begin: the packed model says whether it speaks music or text, and what is to be said about it.

function introduce(packed, find) {
  const { rounding } = packed, step = packed.kind === "music" ? "frame" : "symbol";
  const cost = rounding ? rounding.exact - rounding.rounded : 0;
  const told = Math.abs(cost) < 5e-5 ? "nothing lost" : `${Math.abs(cost).toFixed(4)} nats a ${step} ${cost > 0 ? "lost" : "better"}`;
  const lost = rounding ? `validation log-likelihood ${rounding.exact.toFixed(4)} exactly, ${rounding.rounded.toFixed(4)} rounded: ${told}` : "its cost was not measured, because the data were not found";
  const facts = { Run: `${packed.name}: ${packed.recipe} on ${packed.data}`, Network: packed.about, Weights: `${packed.weights.toLocaleString("en")} as ${packed.precision}`, Rounding: lost, Memory: packed.memory ? "recall: what was said before may come again" : "none" };
  for (const [name, value] of Object.entries(facts)) {
    const term = document.createElement("dt"), said = document.createElement("dd");
    term.textContent = name;
    said.textContent = value;
    find("facts").append(term, said);
  }
  find("brand").textContent = `${packed.recipe} · ${packed.about}`;
  find("title").textContent = packed.kind === "music" ? `${packed.title}, without end` : `${packed.title}, continued`;
  find(packed.kind).hidden = false;
}

const packed = JSON.parse(document.getElementById("model").textContent), stage = document.getElementById("player");
introduce(packed, (name) => stage.querySelector(`[data-name="${name}"]`));
const player = packed.kind === "music" ? new MusicPlayer(packed, stage) : new TextPlayer(packed, stage);
