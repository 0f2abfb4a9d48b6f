import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useEffect, useRef } from 'react'
import { BASE, toFailure } from './api.ts'
import { Button } from './components/button.tsx'
import { Empty, Problem } from './components/page.tsx'
import { sessionQuery, signIn, signOut } from './session.ts'
import { texts } from './texts.ts'

/**
 * Admits a person with a session and an organization, and redirects others to the sign-in page. Begins again if the
 * membership of the organization has ended.
 */
export function Gate({ children }: { children: ReactNode }) {
  const { data, error, refetch } = useQuery(sessionQuery)
  const isRefused = !!error && toFailure(error).status === 401
  useEffect(() => {
    if (isRefused) signIn()
  }, [isRefused])
  const organization = data?.organization?.id
  const first = useRef(organization)
  useEffect(() => {
    if (first.current && organization !== first.current) location.assign(`${BASE}/app`)
    first.current = organization
  }, [organization])
  if (organization) return children
  if (data) {
    return (
      <main className="mx-auto max-w-lg p-8">
        <Empty title={texts.noOrganization} text={texts.noOrganizationText}>
          <Button kind="primary" onClick={() => location.reload()}>
            {texts.reload}
          </Button>
          <Button onClick={() => void signOut()}>{texts.signOut}</Button>
        </Empty>
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
