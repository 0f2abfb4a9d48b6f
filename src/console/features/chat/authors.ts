import { useCallback } from 'react'
import { useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { useMembers } from '../agents/names.ts'
import type { Message } from './tree.ts'

/** Names the authors of questions. Returns null for the person's own, and until the names are known. */
export function useAuthors(messages: readonly Message[] = []): (message: Message) => string | null {
  const { user } = useSession()
  const hasOthers = messages.some(({ userId }) => userId !== user.id)
  const { data } = useMembers(hasOthers)
  return useCallback(
    ({ userId }) => {
      if (!data || userId === user.id) return null
      return data.members.find((member) => member.userId === userId)?.name ?? texts.chat.formerMember
    },
    [data, user.id],
  )
}
