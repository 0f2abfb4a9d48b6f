// No TypeScript here, so that an old Node can read it and say what is wrong.
const [major, minor] = process.versions.node.split('.')
if (Number(major) < 24) {
  console.error(`Muster needs Node 24; found ${major}.${minor}`)
  process.exit(1)
}
