"""``outguard demo``: the main job, on real engines, in a page of output."""

from guard.demo.script import run as run
