import { useTitle } from '../../components/page.tsx'
import { texts } from '../../texts.ts'
import { ChatList } from './chat-list.tsx'

/** The list of chats as a separate page, for narrow screens. */
export function AllChats() {
  useTitle(texts.chat.chats)
  return (
    <div className="mx-auto flex h-full w-full max-w-2xl">
      <h1 className="sr-only">{texts.chat.chats}</h1>
      <ChatList isWholePage />
    </div>
  )
}
