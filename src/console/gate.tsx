import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useEffect } from 'react'
import { toFailure } from './api.ts'
import { Problem } from './components/page.tsx'
import { sessionQuery, signIn } from './session.ts'
import { texts } from './texts.ts'

/** Admits a person with a session, and redirects others to the sign-in page. */
export function Gate({ children }: { children: ReactNode }) {
  const { data, error, refetch } = useQuery(sessionQuery)
  const isRefused = !!error && toFailure(error).status === 401
  useEffect(() => {
    if (isRefused) signIn()
  }, [isRefused])
  if (data) return children
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
