// The rooms of src/: what imports against their order, and the files that no folder of a room has.
import { ROOMS } from '../../.dependency-cruiser.mjs';
import { importsOf } from './circles.mjs';

/** From the top down; the place of a file outside every room is NaN, which is above and below nothing. */
const PLACES = new Map(ROOMS.flatMap((names, place) => names.map((name) => [name, place])));
const roomOf = (path) => path.match(/^src\/([^/]+)\//)?.[1];

/** A line for each import that leads to a room above, or that a file outside every room has or is. */
export const backArrows = (sources) =>
  [...sources].flatMap(([path, file]) =>
    [...importsOf(path, file, sources)]
      .filter((target) => !(PLACES.get(roomOf(path)) <= PLACES.get(roomOf(target))))
      .map((target) => `${path}: it imports ${target}, which is above it or in no room`),
  );

/** A line for each file at the top of a room. */
export const topFiles = (sources, room) =>
  [...sources.keys()]
    .filter((path) => path.startsWith(`src/${room}/`) && path.split('/').length === 3)
    .map((path) => `${path}: it belongs to a folder of src/${room}`);
