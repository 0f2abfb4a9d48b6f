// The texts of the skills, apart from those that other pages need.

export const skills = {
  title: 'Skills',
  new: 'New skill',
  core: 'Built in',
  organization: 'Your organization',
  marketplace: 'Other organizations',
  emptyTitle: 'No skills of your own yet',
  emptyText: 'A skill is a prompt that agents load when a task needs it.',
  name: 'Name',
  nameHelp: 'Small letters, digits and hyphens.',
  displayName: 'Display name',
  description: 'Description',
  descriptionHelp: 'The model decides by it when to load the skill.',
  prompt: 'Prompt (Markdown)',
  category: 'Category',
  tools: 'Built-in tools',
  created: 'Skill created',
  version: (version: number) => `v${version}`,
  delete: 'Delete the skill',
  deleteTitle: 'Delete this skill?',
  deleteText: 'Its agents continue without it.',
} as const
