import { test } from 'vitest'
import { openStream } from '../support/sse.ts'
import { startLab } from './lab.ts'
test('x', async () => {
    const lab = await startLab()
    lab.model.script({ tokens: ['one '], end: 'hang' })
    const body = { message: 'Hello', stream: true }
    const stream = await openStream(lab.server, `/api/v1/agents/${lab.agentId}/execute?onDisconnect=cancel`, { method: 'POST', body })
    await stream.next()
    const { aborted } = await lab.model.request(0)
    await stream.next()
    await stream.close()
    await aborted
    await lab.idle()
    let t = Date.now()
    const lap = (n: string) => { console.log(n, Date.now() - t); t = Date.now() }
    await lab.model.close(); lap('model')
    await lab.engine.drain(); lap('drain')
    await lab.server[Symbol.asyncDispose](); lap('server')
})
