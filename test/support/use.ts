import { afterAll, expect } from 'vitest'

let stack = new AsyncDisposableStack()
let file: string | undefined

/**
 * Disposes of a server, folder or process after the tests of the file: `const server = await use(startServer())` at its
 * top level. The last one goes first.
 */
export async function use<Thing extends AsyncDisposable>(starting: Promise<Thing>): Promise<Thing> {
  const thing = await starting
  const { testPath } = expect.getState()
  if (testPath !== file || stack.disposed) {
    // The previous file has this open if it had no test to run, as with -t.
    await stack.disposeAsync()
    const own = new AsyncDisposableStack()
    afterAll(() => own.disposeAsync())
    stack = own
    file = testPath
  }
  return stack.use(thing)
}
