// Opens the player of a model in front of the page; closing it ends its sound.

function openPlayer(button) {
  const { before, after } = JSON.parse(document.getElementById("player-shell").textContent);
  const model = button.parentElement.querySelector("script").textContent;
  const curtain = document.createElement("dialog"), frame = document.createElement("iframe"), close = document.createElement("button");
  curtain.className = "curtain";
  frame.title = "Player";
  frame.allow = "autoplay; midi";
  frame.srcdoc = `${before}<script type="application/json" id="model">${model}</` + `script>${after}`;
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => curtain.close());
  curtain.addEventListener("close", () => { curtain.remove(); button.focus(); });
  curtain.append(frame, close);
  document.body.append(curtain);
  curtain.showModal();
}

document.querySelectorAll(".open-player").forEach((button) => button.addEventListener("click", () => openPlayer(button)));
