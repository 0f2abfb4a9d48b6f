import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useState, useSyncExternalStore } from 'react'
import { client, toFailure } from './api.ts'
import { reread } from './lib/reread.ts'
import { queryClient } from './queries.ts'
import { signIn } from './session.ts'

/** Delays between attempts to connect (ms), short at first. */
const WAITS = [250, 500, 1_000, 2_000, 5_000]

type Handlers = {
  onData: (data: unknown) => void
  /** Called at each connection, and when one is lost. */
  onState?: (connected: boolean) => void
  /** Called when the subscription is refused, also later. */
  onGone?: (error: unknown) => void
}

/** Reads again the queries of the page that have failed. */
const rereadFailed = () => reread(queryClient, { type: 'active', predicate: ({ state }) => state.status === 'error' })

/**
 * Follows a subscription until the returned function is called. Reconnects after a lost connection or a restart of the
 * server, which others may have found unreachable, too. Has no connection while the page is in the background;
 * `inputOf` returns the place to resume at.
 */
export function follow(path: string, inputOf: () => object, { onData, onState, onGone }: Handlers): () => void {
  let attempt = 0
  let isOver = false
  let timer: ReturnType<typeof setTimeout> | undefined
  let subscription: { unsubscribe: () => void } | undefined
  let opened = 0
  let isLost = false

  const again = () => {
    if (isOver) return
    isLost = true
    onState?.(false)
    close()
    timer = setTimeout(open, WAITS[Math.min(attempt, WAITS.length - 1)])
    attempt += 1
  }

  const isThere = () => {
    if (isLost) void rereadFailed()
    isLost = false
    onState?.(true)
  }

  function open() {
    opened += 1
    const own = opened
    subscription?.unsubscribe()
    subscription = client.subscription(path, inputOf(), {
      onData(data: unknown) {
        if (own !== opened || isOver) return
        attempt = 0
        isThere()
        onData(data)
      },
      onStarted: () => own === opened && isThere(),
      // An EventSource reconnects late, and not after every refusal.
      onConnectionStateChange: ({ state, error }: { state: string; error?: unknown }) => {
        if (state === 'connecting' && error && own === opened) again()
      },
      onError(error: unknown) {
        if (own !== opened) return
        const { status } = toFailure(error)
        if (status === 403 || status === 404) {
          isOver = true
          return onGone?.(error)
        }
        // A page with unsaved changes stays, and connects again after a sign-in in another tab.
        if (status === 401) signIn()
        again()
      },
      onComplete: () => own === opened && again(),
    })
  }

  const close = () => {
    // Events of a closed connection are ignored.
    opened += 1
    subscription?.unsubscribe()
    clearTimeout(timer)
    timer = undefined
  }

  // Reconnects at once when the browser is online again.
  const wake = () => {
    if (isOver || !timer || document.hidden) return
    clearTimeout(timer)
    attempt = 0
    open()
  }
  // Browsers open six connections to a server for all of their tabs, so a page in the background has none.
  const showOrHide = () => {
    if (isOver) return
    close()
    if (!document.hidden) open()
  }
  window.addEventListener('online', wake)
  document.addEventListener('visibilitychange', showOrHide)
  if (!document.hidden) open()
  return () => {
    isOver = true
    window.removeEventListener('online', wake)
    document.removeEventListener('visibilitychange', showOrHide)
    close()
  }
}

const onVisibility = (listener: () => void) => {
  document.addEventListener('visibilitychange', listener)
  return () => document.removeEventListener('visibilitychange', listener)
}

/** Returns whether the page is in the background. */
export const useIsHidden = (): boolean => useSyncExternalStore(onVisibility, () => document.hidden)

/** Time within which changes are read together (ms). */
const TOGETHER = 150

/**
 * Reads queries again (by the first words of their keys) when a subscription reports a change. Only a visible page has
 * the connection, because browsers open six to a server for all of their tabs. Returns whether the connection is there.
 */
export function useChanges(path: 'tasks.changes' | 'approvals.changes', changed: string): boolean {
  const cache = useQueryClient()
  const isHidden = useIsHidden()
  const [hasConnection, setHasConnection] = useState(true)
  useEffect(() => {
    if (isHidden) return
    let timer: ReturnType<typeof setTimeout> | undefined
    const rereadSoon = () => {
      timer ??= setTimeout(() => {
        timer = undefined
        void reread(cache, { predicate: ({ queryKey: [name] }) => String(name).startsWith(changed) })
      }, TOGETHER)
    }
    let isConnected = false
    const stop = follow(path, () => ({}), {
      onData: rereadSoon,
      onState(connected) {
        // Something may have changed meanwhile.
        if (connected && !isConnected) rereadSoon()
        isConnected = connected
        setHasConnection(connected)
      },
    })
    return () => {
      clearTimeout(timer)
      stop()
    }
  }, [path, changed, isHidden, cache])
  return hasConnection
}
