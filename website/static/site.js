// A button that copies a block of code: of commands what is typed, without prompts, comments and output.
const typed = (block, text) => {
  const lines = text.replace(/\n$/, "").split("\n");
  const kind = block.closest("div[class*='highlight-']")?.className ?? "";
  if (kind.includes("console")) {
    return lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2)).join("\n");
  }
  if (kind.includes("pycon")) {
    return lines.filter((line) => /^(>>>|\.\.\.)/.test(line)).map((line) => line.slice(4)).join("\n");
  }
  return lines.join("\n");
};

document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll("div.highlight")) {
    const text = block.querySelector("pre").textContent;
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(typed(block, text));
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
    block.append(button);
  }
});
