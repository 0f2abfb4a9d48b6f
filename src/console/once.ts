import { useRef } from 'react'
import { callMutation, type Input, type Output, type Path } from './api.ts'
import { newId } from './lib/id.ts'

const NONE = { of: '', key: '' }

/**
 * Returns {@link callMutation} for what a form creates or starts. The same call, made again after an answer that was
 * lost, has the same Idempotency-Key and no second effect. After an answer, or with another input, it is a new call.
 * Answers that show a secret once need another way, because a repetition has no secret.
 */
export function useOnce() {
  const last = useRef(NONE)
  return async <Name extends Path>(name: Name, input: Input<Name>): Promise<Output<Name>> => {
    const of = JSON.stringify([name, input])
    if (last.current.of !== of) last.current = { of, key: newId() }
    const { key } = last.current
    const answer = await callMutation(name, input, { key })
    if (last.current.key === key) last.current = NONE
    return answer
  }
}
