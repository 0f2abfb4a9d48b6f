import { queryOptions, useQuery } from '@tanstack/react-query'
import { BASE, chosenOrganization, rest } from './api.ts'
import { toast } from './components/toast.tsx'
import { clearTab, readStored, store } from './lib/storage.ts'
import { texts } from './texts.ts'
import { hasUnsaved } from './unsaved.ts'

export type Organization = { id: string; name: string; slug: string; role: 'owner' | 'admin' | 'member' }

/** The signed-in person, and the organization (contract-2.md section 3.2). */
export type Session = {
  user: { id: string; name: string; email: string; image?: string | null }
  organization: { id: string; name: string; slug: string } | null
  organizations: Organization[]
  role: 'owner' | 'admin' | 'member'
  scopes: string[]
}

let isLeaving = false

/** The interval between messages about an ended session (ms). */
const REMIND = 30_000
let remindedAt = Number.NEGATIVE_INFINITY

/**
 * Redirects to the sign-in page, and back here afterwards. A page with unsaved changes stays, and asks the person to
 * sign in in another tab.
 */
export function signIn(): void {
  // Several refused requests lead there once.
  if (isLeaving) return
  if (hasUnsaved()) {
    if (performance.now() - remindedAt < REMIND) return
    remindedAt = performance.now()
    toast(texts.signedOut, 'bad')
    return
  }
  isLeaving = true
  const here = encodeURIComponent(location.pathname + location.search)
  location.assign(`${BASE}/app/sign-in?returnTo=${here}`)
}

/** The key of the person to whom unsent texts and files of this tab belong. */
const OWNER = 'muster.person'

/** Removes what another person has left in this tab. */
function claimTab(userId: string): void {
  const before = readStored('sessionStorage', OWNER)
  if (before !== null && before !== userId) clearTab()
  store('sessionStorage', OWNER, userId)
}

/** Returns the organization that had a slug before its present one; null if the person is not a member of it. */
async function readRenamed(slug: string): Promise<Session['organization']> {
  const path = `/api/auth/session?organization=${encodeURIComponent(slug)}`
  const session = await rest<Session>('GET', path, undefined, {}).catch(() => null)
  return session?.organization ?? null
}

/**
 * Reads the session in the organization of the URL, or else the last selected one, or else the first. A selection
 * without a membership is dropped.
 */
async function readSession(): Promise<Session> {
  const session = await rest<Session>('GET', '/api/auth/session', undefined, {})
  const named = new URLSearchParams(location.search).get('organization')
  const wanted = named ?? chosenOrganization.get()
  claimTab(session.user.id)
  const { organizations } = session
  const member = (named: { id: string } | null) => organizations.find(({ id }) => id === named?.id)
  const found =
    organizations.find(({ id, slug }) => id === wanted || slug === wanted) ??
    member(named ? await readRenamed(named) : null) ??
    member(session.organization) ??
    organizations[0]
  if (!found) return session
  chosenOrganization.set(found.id)
  return { ...session, organization: found, role: found.role }
}

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  queryFn: readSession,
  staleTime: Number.POSITIVE_INFINITY,
  // Another person may have signed in meanwhile, in another tab.
  refetchOnWindowFocus: 'always',
})

/** The session. Pages are rendered only after it was read. */
export function useSession(): Session {
  const { data } = useQuery(sessionQuery)
  if (!data) throw new Error('No session')
  return data
}

export const useIsAdmin = (): boolean => useSession().role !== 'member'

/**
 * Returns whether the person may change something of an owner. The server decides; pages leave out what it would
 * refuse.
 */
export function useMayChange(ownerId: string | undefined): boolean {
  const { role, user } = useSession()
  return role !== 'member' || user.id === ownerId
}

/** Switches to another organization, and clears all data of the previous one. */
export function switchOrganization(id: string): void {
  chosenOrganization.set(id)
  location.assign(`${BASE}/app`)
}

/** Ends the session. */
export async function signOut(): Promise<void> {
  await rest('POST', '/api/auth/logout')
  location.assign(`${BASE}/app/sign-in`)
}
