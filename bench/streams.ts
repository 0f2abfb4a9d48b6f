// A separate process: opens a number of concurrent streams and reads them to their ends. Reads and prints a line of
// JSON.
import { readStream, type StreamTarget } from './sse.ts'

const { target, count } = JSON.parse(process.argv[2] ?? '') as { target: StreamTarget; count: number }
const started = performance.now()
const streams = await Promise.all(Array.from({ length: count }, () => readStream(target)))
const tokens = streams.reduce((sum, stream) => sum + stream.tokens, 0)
console.log(JSON.stringify({ tokens, ms: performance.now() - started }))
process.exit()
