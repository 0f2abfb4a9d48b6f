/** Makes a random id. Pages without HTTPS, such as those of a server in a local network, lack `crypto.randomUUID`. */
export const newId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('')
