/** A number of bytes in readable units. */

export function gibibytes(bytes: number): string {
  return bytes < 1 << 30 ? `${(bytes / (1 << 20)).toFixed(1)} MiB` : `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}

export function kibibytes(bytes: number): string {
  return `${(bytes / 1024).toFixed(0)} KiB`;
}
