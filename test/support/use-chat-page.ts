// A page with `useChat` of the AI SDK, which test/browser/use-chat.test.ts opens. It keeps its messages over a reload.
import { useChat } from '@ai-sdk/react'
import { DefaultChatTransport, type UIMessage } from 'ai'
import { createElement, useEffect, useRef } from 'react'
import { createRoot } from 'react-dom/client'

const query = new URLSearchParams(location.search)
const transport = new DefaultChatTransport({
  api: query.get('api') ?? '',
  headers: { authorization: `Bearer ${query.get('token')}` },
})

const textOf = ({ parts }: UIMessage) => parts.flatMap((part) => (part.type === 'text' ? part.text : [])).join('|')

function Page() {
  const { messages, sendMessage, status, resumeStream } = useChat({
    id: 'browser',
    transport,
    resume: true,
    messages: JSON.parse(sessionStorage.messages ?? '[]'),
  })
  useEffect(() => {
    sessionStorage.messages = JSON.stringify(messages)
  }, [messages])
  // The status stays as it is until the service has answered, and a second resume would end the first one.
  const isResuming = useRef(false)
  useEffect(() => {
    const timer = setInterval(async () => {
      if (status !== 'error' || isResuming.current) return
      isResuming.current = true
      await resumeStream().finally(() => {
        isResuming.current = false
      })
    }, 300)
    return () => clearInterval(timer)
  }, [status, resumeStream])
  return createElement(
    'main',
    null,
    createElement('button', { type: 'button', onClick: () => void sendMessage({ text: 'Count' }) }, 'Send'),
    createElement('output', null, status),
    messages.map((message) => createElement('p', { key: message.id, 'data-role': message.role }, textOf(message))),
  )
}

createRoot(document.body.appendChild(document.createElement('div'))).render(createElement(Page))
