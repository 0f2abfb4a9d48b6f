import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { createHostCheck } from '../../src/http/hosts.ts'
import { readSettings } from '../../src/settings.ts'
import { startServer } from '../support/server.ts'

const isAllowed = (env: Record<string, string>, host: string): boolean => {
  const { check } = createHostCheck(readSettings(env))
  try {
    check({ headers: { host } } as never)
    return true
  } catch {
    return false
  }
}

describe('a host in a request', () => {
  it.each([
    ['localhost:3000', true],
    ['LOCALHOST', true],
    ['muster.localhost', true],
    ['127.0.0.1:3000', true],
    ['[::1]:3000', true],
    ['192.168.1.5:3000', true],
    ['[2001:db8::1]', true],
    ['muster.example.com', true],
    ['muster.example.com.:443', true],
    ['evil.example', false],
    ['muster.example.com.evil.example', false],
    ['localhost.evil.example', false],
    ['127.0.0.1.evil.example', false],
    ['evil.example?.localhost', false],
    ['evil.example/.localhost', false],
    ['evil.example#.localhost', false],
    ['evil.example\\.localhost', false],
    ['evil.example@localhost', false],
    ['', false],
  ])('a host in a request that is %s is allowed by default: %s', (host, allowed) => {
    expect(isAllowed({ PUBLIC_URL: 'https://muster.example.com/base' }, host)).toBe(allowed)
  })

  it('must be in ALLOWED_HOSTS if that is set, or be the host of PUBLIC_URL', () => {
    const env = { ALLOWED_HOSTS: 'a.example, B.example', PUBLIC_URL: 'https://c.example' }
    expect(['a.example', 'b.example:80', 'c.example'].map((host) => isAllowed(env, host))).toEqual([true, true, true])
    expect(['localhost', '10.0.0.1', 'd.example'].map((host) => isAllowed(env, host))).toEqual([false, false, false])
    expect(isAllowed({ ALLOWED_HOSTS: '*' }, 'anything.example')).toBe(true)
  })

  it('is unchecked on a public address without PUBLIC_URL, with a warning', () => {
    expect(isAllowed({ HOST: '0.0.0.0' }, 'anything.example')).toBe(true)
    expect(createHostCheck(readSettings({ HOST: '0.0.0.0' })).isOpen).toBe(true)
    expect(createHostCheck(readSettings({ HOST: '0.0.0.0', ALLOWED_HOSTS: '*' })).isOpen).toBe(false)
    expect(createHostCheck(readSettings({ HOST: '0.0.0.0', PUBLIC_URL: 'https://a.example' })).isOpen).toBe(false)
  })

  it.each(['127.0.0.1', 'localhost', '::1', '[::1]', '0:0:0:0:0:0:0:1', '::ffff:127.0.0.1', '127.1'])(
    'is checked on loopback: %s',
    (HOST) => {
      expect(createHostCheck(readSettings({ HOST })).isOpen).toBe(false)
      expect(isAllowed({ HOST }, 'evil.example')).toBe(false)
      expect(isAllowed({ HOST }, '[::1]:3000')).toBe(true)
    },
  )

  it('has no scheme: an URL in ALLOWED_HOSTS stops the start', () => {
    expect(() => readSettings({ ALLOWED_HOSTS: 'https://a.example' })).toThrow(
      'ALLOWED_HOSTS: must be *, or host names',
    )
  })
})

it('another host gives 421 on every API except health checks, and two Host headers give 400', async () => {
  await using server = await startServer()
  const { port } = new URL(server.url)
  const send = (path: string, ...lines: string[]) => {
    const socket = connect(Number(port), '127.0.0.1')
    socket.write([`GET ${path} HTTP/1.1`, ...lines, 'Connection: close', '', ''].join('\r\n'))
    return text(socket)
  }
  const token = `Authorization: Bearer ${server.token}`
  for (const path of ['/api/v1/agents', '/graphql?query={__typename}', '/trpc/agents.list', '/api/docs', '/nowhere']) {
    const answer = await send(path, 'Host: rebound.example', token)
    expect(answer).toContain('HTTP/1.1 421 Misdirected Request')
    expect(answer).toContain('"message":"Misdirected request"')
  }
  for (const path of ['/healthz', '/readyz', '/api/health']) {
    expect(await send(path, 'Host: rebound.example')).toContain('HTTP/1.1 200 OK')
  }
  expect(await send('/api/v1/agents', 'Host: localhost', token)).toContain('HTTP/1.1 200 OK')
  expect(await send('/api/v1/agents', 'Host: localhost', 'Host: localhost', token)).toContain(
    'HTTP/1.1 400 Bad Request',
  )
  expect(await send('/api/v1/agents', 'Host: localhost', 'host: evil.example', token)).toContain('HTTP/1.1 400')
  // The host of a whole address counts instead of the header, as it does for a proxy before the service.
  const inAddress = (host: string) => send(`http://${host}/api/v1/agents`, 'Host: localhost', token)
  expect(await inAddress('rebound.example')).toContain('HTTP/1.1 421 Misdirected Request')
  expect(await inAddress('localhost')).toContain('HTTP/1.1 200 OK')
})
