// The texts of the list of approvals, apart from those that chats need.

export const approvals = {
  notify: 'Notify me in this browser',
  notifyRefused: 'The browser does not allow notifications for this page. Allow them in its settings.',
  notifyOn: 'Notifications are on',
  emptyTitle: 'Nothing waits for you',
  emptyText: 'When a tool asks before it is called, the call appears here.',
  noneOf: 'There are none.',
  until: 'Expires',
  inChat: 'Open the chat',
  decidedBy: (name: string, when: string) => `by ${name}, ${when}`,
  forPerson: (name: string) => `Asked by ${name}`,
  inputOf: (name: string) => `Input, edited by ${name}`,
} as const
