/** Thrown if a server cannot be used. The public message has only texts of the server that were cleaned. */
export class UnreachableServer extends Error {
  override name = 'UnreachableServer'
}
