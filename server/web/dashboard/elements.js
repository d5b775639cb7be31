// Makes elements. All text is inserted as text, so a program's name is never markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "style") Object.assign(made.style, value);
    else if (key.startsWith("aria-") || key === "role" || key === "scope") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

export function shape(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "color") made.style[attributes.class === "area" ? "fill" : "stroke"] = value;
    else made.setAttribute(key, value);
  }
  if (text !== null) made.textContent = text;
  return made;
}

export const byId = (id) => document.getElementById(id);
