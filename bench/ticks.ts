// A separate process: opens a number of concurrent streams of a ticking model and reads them to their ends. Prints a
// word once each has started, and sends its parent the time of each token and its delay (ms), by stream; null for a
// stream with missing tokens.
import { Agent, request } from 'node:http'

const { target, count } = JSON.parse(process.argv[2] ?? '')
const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY })
const now = () => performance.timeOrigin + performance.now()
let begun = 0

const read = () =>
  new Promise<[sentAt: number, took: number][] | null>((resolve, reject) => {
    const req = request(target.url, { method: 'POST', headers: target.headers, agent }, (res) => {
      const ticks: [number, number][] = []
      let [rest, whole] = ['', false]
      res.setEncoding('utf8')
      res.on('data', (data: string) => {
        const events = (rest + data).split('\n\n')
        rest = events.pop() ?? ''
        for (const event of events) {
          const [, word, number, sent] = /"(?:text|content)":"(tick|last) (\d+) ([\d.]+) "/.exec(event) ?? []
          if (!word) continue
          if (!ticks.length && ++begun === count) console.log('reading')
          if (Number(number) === ticks.push([Number(sent), now() - Number(sent)])) whole = word === 'last'
        }
      })
      res.on('end', () => resolve(whole ? ticks : null))
      res.on('error', reject)
    })
    req.on('error', reject)
    req.end(JSON.stringify(target.body))
  })

const streams = await Promise.all(Array.from({ length: count }, read))
process.send?.(streams, () => process.exit())
