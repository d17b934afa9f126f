"""The assignor `sticky`: even first, then least movement."""
