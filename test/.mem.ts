import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { newToken } from '../src/lib/token.ts'
import { createFolder } from './support/folder.ts'
import { BOUNDARY, filePart, form } from './support/multipart.ts'
import { spawnServer } from './support/process.ts'
const MIB = 1024*1024
const [N, C, W] = process.argv.slice(2).map(Number) as [number, number, number]
const memory = async (pid: number, field: string) => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
await using folder = await createFolder()
const token = newToken('mst')
await using spawned = await spawnServer(folder.path, { BOOTSTRAP_TOKEN: token, DATA_DIR: folder.path, ...(process.env.NODE_OPTIONS && { NODE_OPTIONS: process.env.NODE_OPTIONS }), ...(process.env.MALLOC_ARENA_MAX && { MALLOC_ARENA_MAX: process.env.MALLOC_ARENA_MAX }) })
const pid = spawned.child.pid ?? 0
const send = async () => {
  const chunk = randomBytes(MIB)
  const body = Readable.from((function* () {
    yield form([filePart('a', '')], '').subarray(0, -2)
    for (let count = 0; count < 25; count++) yield chunk
    yield Buffer.from(`\r\n--${BOUNDARY}--\r\n`)
  })())
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': `multipart/form-data; boundary=${BOUNDARY}` }
  const sent = httpRequest(`${spawned.url}/api/v1/media`, { method: 'POST', headers })
  const answered = once(sent, 'response')
  await pipeline(body, sent)
  const [response] = await answered
  if (response.statusCode !== 200) console.log(response.statusCode)
  response.resume()
}
for (let i = 0; i < W; i++) await send()
const before = await memory(pid, 'VmRSS')
await writeFile(`/proc/${pid}/clear_refs`, '5')
const t = performance.now()
let left = N
await Promise.all(Array.from({ length: C }, async () => { while (left-- > 0) await send() }))
console.log({ N, C, W, before, peak: await memory(pid, 'VmHWM'), grew: Math.round(await memory(pid, 'VmHWM') - before), ms: Math.round(performance.now() - t) })
await spawned.stop('SIGKILL')
