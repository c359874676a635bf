/** Colours of the style sheet for a canvas, which knows neither variables nor light-dark(). */
export function colour(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** The same colour, partly transparent. */
export function faded(rgb: string, opacity: number): string {
  return rgb.replace(/^rgb\(([^)]*)\)$/, `rgba($1, ${opacity})`);
}
