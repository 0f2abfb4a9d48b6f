import { MessagesAnnotation, StateGraph } from '@langchain/langgraph'
import { ChatOpenAI } from '@langchain/openai'

const model = new ChatOpenAI({
  model: 'test-model',
  apiKey: 'none',
  streaming: true,
  configuration: { baseURL: process.env.OPENAI_BASE_URL },
})
const system = { role: 'system', content: 'You are a helpful librarian.' }

export const graph = new StateGraph(MessagesAnnotation)
  .addNode('ada', async ({ messages }) => ({ messages: [await model.invoke([system, ...messages])] }))
  .addEdge('__start__', 'ada')
  .addEdge('ada', '__end__')
  .compile()
