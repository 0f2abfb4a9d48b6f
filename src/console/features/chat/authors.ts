import { useCallback } from 'react'
import { useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { useMembers } from '../agents/names.ts'

/** A message, with its author unless that is the person. */
type Authored = { userId?: string }

/** Names the authors of questions. Returns null for the person's own, and until the names are known. */
export function useAuthors(messages: readonly Authored[]): (message: Authored) => string | null {
  const { user } = useSession()
  const hasOthers = messages.some(({ userId = user.id }) => userId !== user.id)
  const { data } = useMembers(hasOthers)
  return useCallback(
    ({ userId = user.id }) => {
      if (!data || userId === user.id) return null
      return data.members.find((member) => member.userId === userId)?.name ?? texts.chat.formerMember
    },
    [data, user.id],
  )
}
