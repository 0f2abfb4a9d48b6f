/** Number of turns of a timer, and the time between two (ms), after which a stream counts as one without events. */
const [TURNS, INTERVAL] = [15, 20]

/**
 * Calls a function after a time in which this process was able to work: a pause of the process, in which its server
 * sends nothing either, counts as one turn. Stops when it is disposed of.
 */
export function onSilence(action: () => void): Disposable {
  let left = TURNS
  const turn = () => {
    left--
    if (left) timer = setTimeout(turn, INTERVAL)
    else action()
  }
  let timer = setTimeout(turn, INTERVAL)
  return { [Symbol.dispose]: () => clearTimeout(timer) }
}
