import { describe, expect, it } from 'vitest'
import { findWritableHost } from '../../src/db/postgresql/hosts.ts'
import { isUnavailable } from '../../src/lib/database-errors.ts'
import { choosesHost, hostsOf, splitHosts, targetOf } from '../../src/lib/postgres-url.ts'

describe('addresses of several hosts', () => {
  it('each host gets the user, the password, the database and the options of the list', () => {
    expect(splitHosts('postgresql://ada:p%40ss@a:5432,[::1]:5433,b/db?sslmode=require')).toEqual([
      'postgresql://ada:p%40ss@a:5432/db?sslmode=require',
      'postgresql://ada:p%40ss@[::1]:5433/db?sslmode=require',
      'postgresql://ada:p%40ss@b/db?sslmode=require',
    ])
  })

  it('hosts and ports that are listed as options, as libpq reads them, are one address each', () => {
    expect(splitHosts('postgresql://ada@/db?host=a,b&port=5432,5433&sslmode=require')).toEqual([
      'postgresql://ada@localhost/db?host=a&port=5432&sslmode=require',
      'postgresql://ada@localhost/db?host=b&port=5433&sslmode=require',
    ])
    expect(splitHosts('postgresql:///db?host=/run/a%2C/run/b&port=5433')).toEqual([
      'postgresql:///db?host=/run/a&port=5433',
      'postgresql:///db?host=/run/b&port=5433',
    ])
    expect(splitHosts('postgresql://a,b/db?port=1,2')).toEqual(['postgresql://a/db?port=1', 'postgresql://b/db?port=2'])
    expect(choosesHost('postgresql://ada@/db?host=a,b')).toBe(true)
  })

  it('the wanted kind of server is read and removed, wherever it stands', () => {
    const options = [
      '?target_session_attrs=primary',
      '?target_session_attrs=primary&a=1',
      '?a=1&target_session_attrs=primary',
    ]
    const urls = options.map((each) => `postgres://a,b/db${each}`)
    expect(urls.map(targetOf)).toEqual(['primary', 'primary', 'primary'])
    expect(urls.map((url) => splitHosts(url)[1])).toEqual([
      'postgres://b/db',
      'postgres://b/db?a=1',
      'postgres://b/db?a=1',
    ])
  })

  it('an address of one host stays as it is, and no host is chosen', async () => {
    for (const url of ['postgresql://u:p@a/db?application_name=x', 'postgresql:///db?host=/run/postgresql']) {
      expect([splitHosts(url), choosesHost(url), await findWritableHost(url)]).toEqual([[url], false, url])
    }
  })

  it('a user without a host, as managed services write it for sockets, gets the default host', () => {
    expect(splitHosts('postgresql://ada:p%40ss@/db?host=/cloudsql/a:b:c')).toEqual([
      'postgresql://ada:p%40ss@localhost/db?host=/cloudsql/a:b:c',
    ])
  })

  it('messages name the hosts without the password', () => {
    expect(hostsOf('postgresql://ada:secret@a:1,b:2/db')).toBe('a:1,b:2')
    expect(hostsOf('postgresql://ada:secret@/db?host=/cloudsql/a:b:c')).toBe('/cloudsql/a:b:c')
  })

  it('hosts that cannot be reached are an unavailable database', async () => {
    const failure = await findWritableHost('postgresql://u@127.0.0.1:1,127.0.0.1:2/db').catch((error: unknown) => error)
    expect(isUnavailable(failure)).toBe(true)
  })
})
