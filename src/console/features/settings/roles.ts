import { settings } from '../../texts/settings.ts'

export type Role = keyof typeof settings.members.roles

/** Returns the roles that a member may give to others, the highest first. */
export const grantable = (own: Role): Role[] =>
  (Object.keys(settings.members.roles) as Role[]).filter((role) => role !== 'owner' || own === 'owner')
