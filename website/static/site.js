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
    if (block.closest(".cell_output")) continue;
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
    block.querySelector("pre").prepend(button);
  }
});

// A choice of versions in the side bar, where website/versions.py put several beside each other.
document.addEventListener("DOMContentLoaded", async () => {
  if (!location.protocol.startsWith("http")) return;
  const pages = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
  const brand = document.querySelector(".sidebar-brand");
  for (const [above, folder] of [["", ""], ["../", pages.pathname.split("/").at(-2)]]) {
    const site = new URL(above || "./", pages);
    const answer = await fetch(new URL("versions.json", site));
    if (!answer.ok) continue;
    const versions = await answer.json();
    if (!versions.length) return;
    const choice = document.createElement("select");
    choice.className = "versions";
    choice.ariaLabel = "version";
    for (const version of ["", ...versions]) {
      choice.add(new Option(version || "development", version, false, version === folder));
    }
    const page = location.pathname.slice(pages.pathname.length);
    choice.addEventListener("change", async () => {
      const chosen = new URL(choice.value ? `${choice.value}/` : "./", site);
      const same = new URL(page, chosen);
      location.href = (await fetch(same, { method: "HEAD" })).ok ? same : chosen;
    });
    brand.after(choice);
    return;
  }
});
