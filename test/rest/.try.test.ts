import { test, expect } from 'vitest'
import { startServer } from '../support/server.ts'
test('x', async () => {
  await using server = await startServer()
  const call = async (m: string, p: string, body?: any) => { const r = await fetch(server.url + p, { method: m, headers: { authorization: `Bearer ${server.token}`, ...(body && {'content-type': 'application/json'}) }, ...(body && { body: JSON.stringify(body) }) }); console.log(m, p, r.status, (await r.text()).slice(0, 1500)) }
  const space = await server.service.deps.db.space.findFirstOrThrow()
  const agent = await (await fetch(server.url + '/api/v1/agents', { method: 'POST', headers: { authorization: `Bearer ${server.token}`, 'content-type': 'application/json' }, body: JSON.stringify({ name: 'A', systemPrompt: 'x' }) })).json() as any
  const p = `/api/spaces/${space.id}`
  await call('POST', p + '/init', {})
  await call('POST', p + '/init', { type: 'x' })
  await call('POST', p + '/init', { type: 'git' })
  await call('POST', p + '/init', { type: 'git', url: 'https://localhost/x' })
  await call('POST', p + '/init', { type: 'git', url: '--upload-pack=x' })
  await call('POST', p + '/init', { type: 'git', url: 'https://example.invalid/x', branch: '--x' })
  await call('POST', p + '/init', { type: 'starterKit', orgId: 'x' })
  await call('POST', p + '/init', { type: 'starterKit', spaceName: 'Named' })
  await call('POST', p + '/init', { type: 'empty' })
  await call('POST', p + '/environment', { environmentVariables: { A: 'b' } })
  await call('POST', '/api/agent/execute', { characterId: agent.id, message: 'Hi' })
  await call('POST', '/api/agent/execute', { characterId: agent.id, message: 'Hi', spaceId: space.id, stream: true })
  await call('POST', '/api/agent/execute', { message: 'Hi' })
  await call('GET', `/api/usage/organization/${space.organizationId}`)
  await call('GET', `/api/usage/organization/${space.organizationId}?period=weekly`)
  await call('GET', `/api/usage/organization/${space.organizationId}?period=hourly`)
  await call('GET', `/api/usage/organization/${space.organizationId}?start=2026-02-30`)
  await call('GET', `/api/usage/organization/x`)
  console.log(server.logs.filter(l => l.includes('"level":50')).join(''))
})
