import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useEffect, useRef } from 'react'
import { BASE, toFailure } from './api.ts'
import { Button } from './components/button.tsx'
import { Empty, Problem } from './components/page.tsx'
import { useAction } from './queries.ts'
import { sessionQuery, signIn, signOut } from './session.ts'
import { texts } from './texts.ts'

/** Reads the session again when a tab opens that another person has signed in to, because tabs share the cookie. */
function useOtherTabs(userId: string | undefined, reread: () => void): void {
  useEffect(() => {
    if (!userId || !('BroadcastChannel' in window)) return
    const channel = new BroadcastChannel('muster.user')
    channel.onmessage = ({ data }) => data !== userId && reread()
    channel.postMessage(userId)
    return () => channel.close()
  }, [userId, reread])
}

/**
 * Admits a person with a session and an organization, and redirects others to the sign-in page. Begins again if the
 * membership of the organization has ended, or if another person has signed in.
 */
export function Gate({ children }: { children: ReactNode }) {
  const { data, error, refetch } = useQuery({
    ...sessionQuery,
    // No page is there yet that notices when the server is back.
    refetchInterval: ({ state: { data, status } }) => !data && status === 'error' && 5_000,
  })
  const leave = useAction(signOut, { quiet: true })
  const isRefused = !!error && toFailure(error).status === 401
  useEffect(() => {
    if (isRefused) signIn()
  }, [isRefused])
  const organization = data?.organization?.id
  const userId = data?.user.id
  useOtherTabs(userId, refetch)
  const actor = organization && userId && `${userId} ${organization}`
  const first = useRef(actor)
  useEffect(() => {
    if (first.current && actor !== first.current) location.assign(`${BASE}/app`)
    first.current ??= actor
  }, [actor])
  if (organization) return children
  if (data) {
    return (
      <main className="mx-auto max-w-lg p-8">
        <Empty title={texts.noOrganization} text={texts.noOrganizationText}>
          <Button kind="primary" onClick={() => location.reload()}>
            {texts.reload}
          </Button>
          <Button busy={leave.isPending} onClick={() => leave.mutate(undefined)}>
            {texts.signOut}
          </Button>
        </Empty>
        {leave.error && <Problem error={leave.error} />}
      </main>
    )
  }
  return (
    <main className="mx-auto max-w-lg p-8">
      {error && !isRefused ? (
        <Problem error={error} retry={() => void refetch()} />
      ) : (
        <p role="status" className="text-soft">
          {texts.loading}
        </p>
      )}
    </main>
  )
}
