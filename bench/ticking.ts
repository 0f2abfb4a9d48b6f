// A separate process: a model with OpenAI's protocol that emits its token's number and the time each second, in every
// reply until a number of seconds after the last request.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'

const duration = Number(process.argv[2]) * 1_000
let latest = 0
const isOver = () => performance.now() > latest + duration
const chunk = (choice: object) =>
  `data: ${JSON.stringify({ id: 'tick', object: 'chat.completion.chunk', created: 0, model: 'm', choices: [choice] })}\n\n`

const server = createServer(async (req, res) => {
  await json(req)
  latest = performance.now()
  res.writeHead(200, { 'content-type': 'text/event-stream' })
  // Staggered over the second.
  await sleep(Math.random() * 1_000)
  for (let [count, over] = [1, false]; !over && !res.destroyed; count++) {
    over = isOver()
    const content = `${over ? 'last' : 'tick'} ${count} ${performance.timeOrigin + performance.now()} `
    res.write(chunk({ index: 0, delta: { role: 'assistant', content }, finish_reason: null }))
    await sleep(1_000)
  }
  res.end(`${chunk({ index: 0, delta: {}, finish_reason: 'stop' })}data: [DONE]\n\n`)
})
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` }))
})
