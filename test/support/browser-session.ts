import { createLink } from '../../src/auth/links.ts'
import { hashPassword } from '../../src/auth/passwords.ts'
import { beginSession } from '../../src/auth/sessions.ts'
import { ownPage } from './rest.ts'
import type { TestServer } from './server.ts'

/** Headers of a browser in which a user is signed in, on a page of the service. */
export async function signedIn(server: TestServer, userId: string, organization?: string) {
  const { deps } = server.service
  const client = { address: '127.0.0.1', userAgent: 'test' }
  const { secret, session } = await deps.db.$transaction((tx) =>
    beginSession(tx, deps, { userId, method: 'password', client }),
  )
  const headers: Record<string, string> = {
    ...ownPage(server),
    Cookie: `muster=${secret}`,
    ...(organization !== undefined && { 'X-Organization': organization }),
  }
  return { secret, id: session.id, headers }
}

/** Gives a user a password. */
export async function setPassword(server: TestServer, userId: string, password: string): Promise<void> {
  const passwordHash = await hashPassword(password)
  await server.service.deps.db.user.update({ where: { id: userId }, data: { passwordHash }, select: { id: true } })
}

/** Creates a code that signs a user in once. */
export function newLink(server: TestServer, userId: string, purpose: 'sign_in' | 'reset_password' = 'sign_in') {
  const { clock, db, sessionKey } = server.service.deps
  return db.$transaction((tx) => createLink(tx, sessionKey, { userId, purpose }, clock.now()))
}
