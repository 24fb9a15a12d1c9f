export { binary, localCloud, type Cloud } from "./index.cjs";
