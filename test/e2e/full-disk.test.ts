import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { newToken } from '../../src/lib/token.ts'
import { createFolder } from '../support/folder.ts'
import { freePort } from '../support/free-port.ts'
import { upload } from '../support/multipart.ts'
import { request } from '../support/rest.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** A separate file system in memory needs a namespace, which some systems forbid. */
const canMount = spawnSync('unshare', ['-rm', 'true']).status === 0

test.runIf(canMount)('on a full disk uploads are 503, requests succeed, and lost log lines are counted', async () => {
  await using folder = await createFolder()
  mkdirSync(join(folder.path, 'small'))
  const token = newToken('mst')
  const port = await freePort()
  const command = `mount -t tmpfs -o size=4m none small && exec "$0" "$1" >small/log 2>&1`
  const child = spawn('unshare', ['-rm', 'sh', '-c', command, process.execPath, join(ROOT, 'src/main.js')], {
    cwd: folder.path,
    env: {
      PATH: process.env.PATH,
      PORT: String(port),
      BOOTSTRAP_TOKEN: token,
      MEDIA_DIR: 'small/media',
      LOG_LEVEL: 'trace',
    },
    stdio: 'ignore',
  })
  const server = { url: `http://127.0.0.1:${port}`, token }
  const log = () => readFileSync(`/proc/${child.pid}/root${folder.path}/small/log`, 'utf8')
  try {
    await expect
      .poll(() =>
        fetch(`${server.url}/readyz`).then(
          ({ ok }) => ok,
          () => false,
        ),
      )
      .toBe(true)
    const media: string[] = []
    for (const size of [2 ** 20, 2 ** 16, 2 ** 12]) {
      for (let status = 200; status === 200; ) {
        const answer = await upload(server, Buffer.alloc(size, 'x'))
        status = answer.status
        if (status === 200) media.push(answer.body.id)
        else expect(answer).toMatchObject({ status: 503, body: { detail: expect.stringContaining('disk') } })
      }
    }
    // Their lines fill the rest of the log's last block.
    for (let count = 0; count < 40; count++) {
      expect((await request(server, 'GET', '/api/v1/agents')).status).toBe(200)
    }
    expect((await request(server, 'DELETE', `/api/v1/media/${media[0]}`)).status).toBe(200)
    await expect.poll(log).toMatch(/"lost":\d+,"reason":"ENOSPC"/)
    expect((await upload(server, 'small')).status).toBe(200)
  } finally {
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
})
