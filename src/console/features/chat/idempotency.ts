import { useRef } from 'react'
import { newId } from '../../lib/id.ts'

const NONE = { of: '', key: '' }

/**
 * Keys for requests that begin runs. The same request, sent again after an answer that was lost, has the same key and
 * begins no second run. After `forget`, which an answer calls, it is a new request.
 */
export function useIdempotencyKey() {
  const last = useRef(NONE)
  return {
    keyOf(request: object): string {
      const of = JSON.stringify(request)
      if (last.current.of !== of) last.current = { of, key: newId() }
      return last.current.key
    },
    forget(): void {
      last.current = NONE
    },
  }
}
